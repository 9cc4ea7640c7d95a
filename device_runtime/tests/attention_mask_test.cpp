#include "attention_mask.h"

#include <catch2/catch.hpp>
#include <string>

using namespace snapgate;

namespace {

// The mask as text: "." visible, "x" masked, "|" between cache and own columns.
std::string drawn(const AttentionMask& mask, std::uint32_t n, std::uint32_t context, std::uint32_t visible) {
    std::string text;
    for (std::uint32_t row = 0; row < n; ++row) {
        for (std::uint32_t column = 0; column < context; ++column) {
            text += column == context - n ? "|" : "";
            text += load_raw(mask.buffer().data(), row * context + column, 2) == visible ? '.' : 'x';
        }
        text += '\n';
    }
    return text;
}

const Encoding kMaskEncoding{DType::kUFixed16, 100.0 / 65535, 65535};

} // namespace

TEST_CASE("the mask shows the cache from the left and the step's own tokens causally") {
    auto mask = AttentionMask::create(kMaskEncoding, -100, 3, 8);
    REQUIRE(mask);
    CHECK(drawn(*mask, 3, 8, 65535) == "xxxxx|.xx\n"
                                       "xxxxx|..x\n"
                                       "xxxxx|...\n");
    mask->show_past(2);
    CHECK(drawn(*mask, 3, 8, 65535) == "..xxx|.xx\n"
                                       "..xxx|..x\n"
                                       "..xxx|...\n");
    mask->show_past(5);
    CHECK(drawn(*mask, 3, 8, 65535) == ".....|.xx\n"
                                       ".....|..x\n"
                                       ".....|...\n");
}

TEST_CASE("going back to an emptier cache masks the columns again") {
    auto mask = AttentionMask::create(kMaskEncoding, -100, 1, 4);
    REQUIRE(mask);
    mask->show_past(3);
    CHECK(drawn(*mask, 1, 4, 65535) == "...|.\n");
    mask->show_past(1);
    CHECK(drawn(*mask, 1, 4, 65535) == ".xx|.\n");
    mask->show_past(0);
    CHECK(drawn(*mask, 1, 4, 65535) == "xxx|.\n");
}

TEST_CASE("mask elements are the model's mask value and 0 in the tensor's own type") {
    auto half = AttentionMask::create(Encoding{DType::kFloat16}, -100, 1, 4);
    REQUIRE(half);
    CHECK(load_raw(half->buffer().data(), 0, 2) == 0xD640); // -100 in float16
    CHECK(load_raw(half->buffer().data(), 3, 2) == 0);
    auto clamped = AttentionMask::create(Encoding{DType::kUFixed8, 0.1, 255}, -100, 1, 4);
    REQUIRE(clamped);
    CHECK(load_raw(clamped->buffer().data(), 0, 1) == 0); // -25.5 is the lowest this type holds
    CHECK(load_raw(clamped->buffer().data(), 3, 1) == 255);
}
