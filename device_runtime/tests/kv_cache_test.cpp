#include "encoding.h"
#include "kv_cache.h"

#include <catch2/catch.hpp>
#include <string>

using namespace snapgate;

namespace {

// 2 heads of dimension 2, context 8: the AR-3 graph reads 5 columns, the AR-1 graph 7. One byte an element, padding
// 9.
constexpr KvShape kShape{2, 2, 8, 7};
constexpr std::uint32_t kHeads = 2;
constexpr std::uint32_t kDim = 2;

// 20, 21, ... stand for the 17 pattern values.
constexpr KvPattern kPattern{20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36};

KvCache make_cache(std::size_t n_layers = 1) {
    const std::vector<KvLayerElements> layers(n_layers, {{1, 9, kPattern}, {1, 9, kPattern}});
    auto cache = KvCache::create(kShape, layers);
    REQUIRE(cache);
    return *std::move(cache);
}

// Element (head, dim) of the token with number `token`, for keys; values add 100.
std::byte element(std::uint32_t token, std::uint32_t head, std::uint32_t dim) {
    return static_cast<std::byte>(token * 10 + head * 2 + dim);
}

// What a graph of n tokens writes for tokens first, first + 1, ...
struct Step {
    std::vector<std::byte> keys;
    std::vector<std::byte> values;

    Step(std::uint32_t first, std::uint32_t n) : keys(kHeads * kDim * n), values(kHeads * kDim * n) {
        for (std::uint32_t head = 0; head < kHeads; ++head) {
            for (std::uint32_t dim = 0; dim < kDim; ++dim) {
                for (std::uint32_t t = 0; t < n; ++t) {
                    keys[(head * kDim + dim) * n + t] = element(first + t, head, dim);
                    values[(head * n + t) * kDim + dim] = element(first + t + 10, head, dim);
                }
            }
        }
    }

    std::vector<KvOutputs> outputs() const { return {{keys.data(), values.data()}}; }
};

// The first `n_tokens` columns hold tokens 1, 2, ..., the others padding.
void check_holds(const KvCache& cache, std::uint32_t n_tokens) {
    for (std::uint32_t head = 0; head < kHeads; ++head) {
        for (std::uint32_t dim = 0; dim < kDim; ++dim) {
            for (std::uint32_t column = 0; column < cache.columns(); ++column) {
                const bool full = column < n_tokens;
                const std::byte key = cache.keys(0)[(head * kDim + dim) * cache.columns() + column];
                const std::byte value = cache.values(0)[(head * cache.columns() + column) * kDim + dim];
                CAPTURE(head, dim, column);
                CHECK(key == (full ? element(column + 1, head, dim) : std::byte{9}));
                CHECK(value == (full ? element(column + 11, head, dim) : std::byte{9}));
            }
        }
    }
}

} // namespace

TEST_CASE("an empty cache holds padding only") {
    KvCache cache = make_cache();
    cache.reset(5);
    CHECK(cache.length() == 0);
    CHECK(cache.columns() == 5);
    check_holds(cache, 0);
}

TEST_CASE("a step's tokens go to the columns after those in the cache, a partial step's padding does not") {
    KvCache cache = make_cache();
    cache.reset(5);
    cache.append(Step(1, 3).outputs(), 3, 3);
    check_holds(cache, 3);
    cache.append(Step(4, 3).outputs(), 3, 1); // one real token, two padding
    CHECK(cache.length() == 4);
    check_holds(cache, 4);
}

TEST_CASE("changing the stride keeps every token in its column, wider and narrower") {
    KvCache cache = make_cache();
    cache.reset(5);
    cache.append(Step(1, 3).outputs(), 3, 3);
    CHECK(cache.use_columns(7));
    check_holds(cache, 3);
    CHECK_FALSE(cache.use_columns(7));
    CHECK(cache.use_columns(5));
    check_holds(cache, 3);
}

TEST_CASE("the last position of the context is counted and needs no column") {
    KvCache cache = make_cache();
    cache.reset(7);
    for (std::uint32_t token = 1; token <= 8; ++token) {
        cache.append(Step(token, 1).outputs(), 1, 1);
    }
    CHECK(cache.length() == 8);
    check_holds(cache, 7);
}

TEST_CASE("a chunk that ends past the narrow layout asks for more columns and then fits") {
    KvCache cache = make_cache();
    cache.reset(5);
    cache.append(Step(1, 3).outputs(), 3, 3);
    CHECK_FALSE(cache.needs_more_columns(2));
    CHECK(cache.needs_more_columns(3));
    cache.append(Step(4, 3).outputs(), 3, 2);
    CHECK(cache.needs_more_columns(3));
    cache.use_columns(cache.max_columns());
    CHECK_FALSE(cache.needs_more_columns(3));
    cache.append(Step(6, 3).outputs(), 3, 3); // positions 5, 6 and 7; the last has no column
    CHECK(cache.length() == 8);
    check_holds(cache, 7);
}

TEST_CASE("layers, keys and values have regions of their own, aligned to 128 bytes") {
    KvCache cache = make_cache(2);
    const std::byte* regions[] = {cache.keys(0), cache.values(0), cache.keys(1), cache.values(1)};
    for (const std::byte* region : regions) {
        CHECK(reinterpret_cast<std::uintptr_t>(region) % 128 == 0);
    }
    CHECK(cache.values(0) - cache.keys(0) == 128);
    CHECK(cache.pool_bytes() == 4 * 128);
}

TEST_CASE("two-byte elements keep their padding") {
    auto cache = KvCache::create(kShape, {{{2, 0x8001}, {2, 0x8001}}});
    REQUIRE(cache);
    cache->reset(5);
    cache->use_columns(7);
    for (std::size_t i = 0; i < 2 * 2 * 7; ++i) {
        CHECK(load_raw(cache->keys(0), i, 2) == 0x8001);
    }
}

TEST_CASE("an empty cache changes its stride without a move") {
    KvCache cache = make_cache();
    cache.reset(5);
    CHECK_FALSE(cache.use_columns(7));
    CHECK(cache.columns() == 7);
    check_holds(cache, 0);
}

TEST_CASE("a depth is filled with the pattern and moves like tokens") {
    KvCache cache = make_cache();
    cache.reset(5);
    cache.fill(3);
    CHECK(cache.length() == 3);
    CHECK(cache.use_columns(7));
    for (std::uint32_t head = 0; head < kHeads; ++head) {
        for (std::uint32_t dim = 0; dim < kDim; ++dim) {
            for (std::uint32_t p = 0; p < 7; ++p) {
                const auto key = static_cast<std::uint32_t>(cache.keys(0)[(head * kDim + dim) * 7 + p]);
                const auto value = static_cast<std::uint32_t>(cache.values(0)[(head * 7 + p) * kDim + dim]);
                CHECK(key == (p < 3 ? 20 + (7 * p + 3 * head + 5 * dim) % 17 : 9));
                CHECK(value == (p < 3 ? 20 + (5 * p + 7 * head + 3 * dim + 1) % 17 : 9));
            }
        }
    }
    CHECK(pattern_value(0) == -1.0F);
    CHECK(pattern_value(8) == 0.0F);
    CHECK(pattern_value(16) == 1.0F);
}
