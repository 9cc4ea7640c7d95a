#include "bandwidth.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

using namespace snapgate;

namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

// Sum of number + i over i of each part of `n_each` words.
std::uint64_t sum_once(std::uint64_t n_each, std::uint64_t n_threads) {
    std::uint64_t sum = 0;
    for (std::uint64_t number = 0; number < n_threads; ++number) {
        sum += n_each * number + n_each * (n_each - 1) / 2;
    }
    return sum;
}

} // namespace

TEST_CASE("the buffer is larger than the caches, within bounds") {
    CHECK(bandwidth_buffer_bytes(std::nullopt) == 256 * kMiB);
    CHECK(bandwidth_buffer_bytes(12 * kMiB) == 256 * kMiB);
    CHECK(bandwidth_buffer_bytes(100 * kMiB) == 400 * kMiB);
    CHECK(bandwidth_buffer_bytes(5000 * kMiB) == 1024 * kMiB);
}

TEST_CASE("each pass reads every byte that it counts") {
    const auto found = measure_bandwidth(3 * kMiB + 5, 3, 4, 0);
    REQUIRE(found);
    CHECK(found->n_threads == 3);
    CHECK(found->n_bytes == 3 * kMiB / 192 * 192);
    REQUIRE(found->pass_ns.size() == 4);
    for (const std::int64_t ns : found->pass_ns) {
        CHECK(ns > 0);
    }
    CHECK(found->checksum == 4 * sum_once(found->n_bytes / 8 / 3, 3));
}

TEST_CASE("passes go on until the time is over") {
    const auto found = measure_bandwidth(kMiB, 1, 1, 20'000'000);
    REQUIRE(found);
    CHECK(found->pass_ns.size() > 1);
}

TEST_CASE("memory that is not there is a fault, not a figure") {
    const auto found = measure_bandwidth(std::numeric_limits<std::size_t>::max(), 1, 1, 0);
    REQUIRE_FALSE(found);
    CHECK(found.fault().code == ExitCode::kOutOfMemory);
}

TEST_CASE("a cache that the kernel does not list is null") {
    BandwidthRecord record;
    record.pass_ns = {7, 8};
    const auto json = nlohmann::json::parse(to_line(record));
    CHECK(json["type"] == "bandwidth");
    CHECK(json["last_level_cache_bytes"].is_null());
    CHECK(json["pass_ns"] == nlohmann::json({7, 8}));
    CHECK_FALSE(json.contains("checksum"));
}
