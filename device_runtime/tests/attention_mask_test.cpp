#include "attention_mask.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace snapgate;

namespace {

// The mask as text: "." visible, "x" masked, "|" between cache and own columns.
std::string drawn(const std::vector<std::byte>& mask, std::uint32_t n, std::uint32_t context, std::uint32_t visible) {
    std::string text;
    for (std::uint32_t row = 0; row < n; ++row) {
        for (std::uint32_t column = 0; column < context; ++column) {
            text += column == context - n ? "|" : "";
            text += load_raw(mask.data(), row * context + column, 2) == visible ? '.' : 'x';
        }
        text += '\n';
    }
    return text;
}

const Encoding kMaskEncoding{DType::kUFixed16, 100.0 / 65535, 65535};

} // namespace

TEST_CASE("the mask shows the cache from the left and the step's own tokens causally") {
    std::vector<std::byte> bytes(3 * 8 * 2);
    AttentionMask mask(bytes.data(), kMaskEncoding, -100, 3, 8);
    CHECK(drawn(bytes, 3, 8, 65535) == "xxxxx|.xx\n"
                                       "xxxxx|..x\n"
                                       "xxxxx|...\n");
    mask.show_past(2);
    CHECK(drawn(bytes, 3, 8, 65535) == "..xxx|.xx\n"
                                       "..xxx|..x\n"
                                       "..xxx|...\n");
    mask.show_past(5);
    CHECK(drawn(bytes, 3, 8, 65535) == ".....|.xx\n"
                                       ".....|..x\n"
                                       ".....|...\n");
}

TEST_CASE("going back to an emptier cache masks the columns again") {
    std::vector<std::byte> bytes(1 * 4 * 2);
    AttentionMask mask(bytes.data(), kMaskEncoding, -100, 1, 4);
    mask.show_past(3);
    CHECK(drawn(bytes, 1, 4, 65535) == "...|.\n");
    mask.show_past(1);
    CHECK(drawn(bytes, 1, 4, 65535) == ".xx|.\n");
    mask.show_past(0);
    CHECK(drawn(bytes, 1, 4, 65535) == "xxx|.\n");
}

TEST_CASE("mask elements are the model's mask value and 0 in the tensor's own type") {
    std::vector<std::byte> half(8);
    AttentionMask(half.data(), Encoding{DType::kFloat16}, -100, 1, 4);
    CHECK(load_raw(half.data(), 0, 2) == 0xD640); // -100 in float16
    CHECK(load_raw(half.data(), 3, 2) == 0);
    std::vector<std::byte> clamped(4);
    AttentionMask(clamped.data(), Encoding{DType::kUFixed8, 0.1, 255}, -100, 1, 4);
    CHECK(load_raw(clamped.data(), 0, 1) == 0); // -25.5 is the lowest this type holds
    CHECK(load_raw(clamped.data(), 3, 1) == 255);
}
