#include "checked.h"
#include "result.h"

#include <catch2/catch.hpp>

using namespace snapgate;

TEST_CASE("a narrowing that would change the value gives nothing") {
    CHECK(checked_narrow<std::uint32_t>(std::uint64_t{4294967295}) == 4294967295U);
    CHECK_FALSE(checked_narrow<std::uint32_t>(std::uint64_t{4294967296}));
    CHECK_FALSE(checked_narrow<std::uint32_t>(std::int64_t{-1}));
    CHECK_FALSE(checked_narrow<std::int32_t>(std::uint32_t{2147483648}));
    CHECK(checked_narrow<std::int8_t>(-128) == -128);
}

TEST_CASE("a product beyond 64 bits gives nothing") {
    CHECK(checked_multiply(1ULL << 32, (1ULL << 32) - 1) == 18446744069414584320ULL);
    CHECK_FALSE(checked_multiply(1ULL << 32, 1ULL << 32));
}

TEST_CASE("a fault reaches the caller through SNAPGATE_TRY and success does not stop it") {
    const auto outer = [](Status inner) -> Result<int> {
        SNAPGATE_TRY(std::move(inner));
        return 7;
    };
    CHECK(*outer(Status{}) == 7);
    const auto failed = outer(Fault{ExitCode::kIoFailed, "here", "", "", "", "", 1002});
    REQUIRE_FALSE(failed);
    CHECK(failed.fault().code == ExitCode::kIoFailed);
    CHECK(failed.fault().where == "here");
    CHECK(failed.fault().qnn_code == 1002U);
}
