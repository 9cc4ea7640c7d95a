#include "half.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace snapgate;

TEST_CASE("float16 of numbers that it holds exactly") {
    CHECK(half_from_float(0.0F) == 0x0000);
    CHECK(half_from_float(-0.0F) == 0x8000);
    CHECK(half_from_float(1.0F) == 0x3C00);
    CHECK(half_from_float(-2.0F) == 0xC000);
    CHECK(half_from_float(65504.0F) == 0x7BFF);
    CHECK(half_from_float(6.103515625e-05F) == 0x0400);   // smallest normal
    CHECK(half_from_float(5.9604644775390625e-08F) == 1); // smallest subnormal
}

TEST_CASE("float16 rounds to nearest and ties to even") {
    CHECK(half_from_float(2049.0F) == half_from_float(2048.0F)); // halfway between 2048 and 2050: even is 2048
    CHECK(half_from_float(2051.0F) == half_from_float(2052.0F)); // halfway between 2050 and 2052: even is 2052
    CHECK(half_from_float(2049.001F) == half_from_float(2050.0F));
    CHECK(half_from_float(0.1F) == 0x2E66);
    CHECK(half_from_float(2.98023223876953125e-08F) == 0); // half the smallest subnormal: even is 0
    CHECK(half_from_float(2.9802326e-08F) == 1);
    CHECK(half_from_float(8.940696716308594e-08F) == 2);       // 1.5 subnormals: even is 2
    CHECK(half_from_float(6.1005353927612305e-05F) == 0x0400); // rounds up from subnormal into normal
}

TEST_CASE("float16 overflows to infinity from the halfway point on") {
    CHECK(half_from_float(65519.99F) == 0x7BFF);
    CHECK(half_from_float(65520.0F) == 0x7C00);
    CHECK(half_from_float(-1e30F) == 0xFC00);
    CHECK(half_from_float(std::numeric_limits<float>::infinity()) == 0x7C00);
}

TEST_CASE("a NaN stays a NaN both ways") {
    CHECK((half_from_float(std::numeric_limits<float>::quiet_NaN()) & 0x7FFF) > 0x7C00);
    CHECK(std::isnan(float_from_half(0x7C01)));
    CHECK(std::isnan(float_from_half(0xFE00)));
}

TEST_CASE("every float16 that is a number survives the way to float32 and back") {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        if ((half & 0x7FFF) <= 0x7C00 && half_from_float(float_from_half(half)) != half) {
            FAIL("0x" << std::hex << bits);
        }
    }
    CHECK(float_from_half(0x3555) == Approx(0.333251953125).epsilon(0));
    CHECK(float_from_half(0x8001) == -5.9604644775390625e-08F);
}
