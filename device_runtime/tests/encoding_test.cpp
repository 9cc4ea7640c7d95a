#include "encoding.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace snapgate;

TEST_CASE("quantising rounds half to even, below zero too") {
    const Encoding encoding{DType::kUFixed8, 1.0, 100};
    CHECK(encoding.encode(0.5F) == 100);
    CHECK(encoding.encode(1.5F) == 102);
    CHECK(encoding.encode(2.5F) == 102);
    CHECK(encoding.encode(-0.5F) == 100);
    CHECK(encoding.encode(-1.5F) == 98);
    CHECK(encoding.encode(-2.5F) == 98);
    CHECK(encoding.encode(1.49F) == 101);
}

TEST_CASE("quantising clamps to the range of the type") {
    CHECK(Encoding{DType::kUFixed8, 1.0, 128}.encode(1e9F) == 255);
    CHECK(Encoding{DType::kUFixed8, 1.0, 128}.encode(-1e9F) == 0);
    CHECK(Encoding{DType::kUFixed16, 0.5, 0}.encode(1e9F) == 65535);
    CHECK((Encoding{DType::kSFixed8, 1.0, 0}.encode(-1e9F) & 0xFF) == 0x80);
    CHECK((Encoding{DType::kSFixed16, 1.0, 0}.encode(1e9F) & 0xFFFF) == 0x7FFF);
    CHECK(Encoding{DType::kUFixed8, 1.0, 128}.encode(std::numeric_limits<float>::infinity()) == 255);
    CHECK(Encoding{DType::kUFixed8, 1.0, 128}.encode(std::numeric_limits<float>::quiet_NaN()) == 128);
}

TEST_CASE("a mask of -100 at its own scale is the lowest element and 0 the zero point") {
    const Encoding encoding{DType::kUFixed16, 100.0 / 65535, 65535};
    CHECK(encoding.encode(-100.0F) == 0);
    CHECK(encoding.encode(0.0F) == 65535);
}

TEST_CASE("decoding is scale times the distance from the zero point") {
    CHECK(Encoding{DType::kUFixed8, 0.5, 128}.decode(130) == 1.0);
    CHECK(Encoding{DType::kUFixed16, 0.25, 40000}.decode(0) == -10000.0);
    CHECK(Encoding{DType::kSFixed8, 2.0, 0}.decode(0xFF) == -2.0);
    CHECK(Encoding{DType::kSFixed16, 1.0, -1}.decode(0x8000) == -32767.0);
    CHECK(Encoding{DType::kFloat16}.decode(0x3C00) == 1.0);
    CHECK(Encoding{DType::kFloat32}.decode(0xBF800000) == -1.0);
}

TEST_CASE("raw elements of 1, 2 and 4 bytes are stored where they belong") {
    std::byte memory[8] = {};
    store_raw(memory, 1, 2, 0xABCD);
    CHECK(load_raw(memory, 1, 2) == 0xABCD);
    CHECK(load_raw(memory, 2, 1) == 0xCD);
    CHECK(load_raw(memory, 0, 2) == 0);
    fill_raw(memory, 2, 4, 0x01020304);
    CHECK(load_raw(memory, 1, 4) == 0x01020304);
    fill_raw(memory + 1, 3, 1, 0xFF);
    CHECK(load_raw(memory, 0, 4) == 0xFFFFFF04);
    CHECK(load_raw(memory, 1, 4) == 0x01020304);
}
