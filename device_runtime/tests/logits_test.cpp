#include "half.h"
#include "logits.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace snapgate;

namespace {

template <typename Raw>
LogitsRow row_of(const std::vector<Raw>& elements, Encoding encoding) {
    return {reinterpret_cast<const std::byte*>(elements.data()), static_cast<std::uint32_t>(elements.size()), encoding};
}

} // namespace

TEST_CASE("argmax takes the lowest id on a tie") {
    const std::vector<std::uint16_t> raw = {5, 60000, 7, 60000};
    CHECK(argmax(row_of(raw, {DType::kUFixed16, 0.1, 30000})) == 1);
    const std::vector<std::uint8_t> equal = {3, 3, 3};
    CHECK(argmax(row_of(equal, {DType::kUFixed8, 0.1, 0})) == 0);
}

TEST_CASE("argmax finds the first of the greatest in a long row, wherever it lies") {
    constexpr std::size_t kLength = 5000; // several blocks, the last not whole
    for (const std::size_t place : {0, 1, 1023, 1024, 2047, 4095, 4096, 4999}) {
        std::vector<std::uint16_t> raw(kLength, 7);
        raw[place] = 65535;
        raw[kLength - 1] = 65535;
        CHECK(argmax(row_of(raw, {DType::kUFixed16, 0.1, 0})) == static_cast<std::int32_t>(place));
        std::vector<std::uint16_t> half(kLength, half_from_float(-2));
        half[place] = half_from_float(-1);
        CHECK(argmax(row_of(half, {DType::kFloat16})) == static_cast<std::int32_t>(place));
        std::vector<std::int32_t> whole(kLength, std::numeric_limits<std::int32_t>::min());
        CHECK(argmax(row_of(whole, {DType::kInt32})) == 0);
        whole[place] = std::numeric_limits<std::int32_t>::min() + 1;
        CHECK(argmax(row_of(whole, {DType::kInt32})) == static_cast<std::int32_t>(place));
    }
    CHECK(argmax(row_of(std::vector<std::uint16_t>(kLength, 0x7E00), {DType::kFloat16})) == 0); // all NaN
}

TEST_CASE("argmax knows the sign of fixed-point and float elements") {
    CHECK(argmax(row_of(std::vector<std::int8_t>{-128, -1, -2}, {DType::kSFixed8, 0.1, 0})) == 1);
    CHECK(argmax(row_of(std::vector<std::int16_t>{-5, -300, 2}, {DType::kSFixed16, 0.1, 0})) == 2);
    const std::vector<std::uint16_t> half = {half_from_float(-3), half_from_float(-0.5F), half_from_float(-1)};
    CHECK(argmax(row_of(half, {DType::kFloat16})) == 1);
    CHECK(argmax(row_of(std::vector<float>{-1e-30F, 1e-30F, -2}, {DType::kFloat32})) == 1);
}

TEST_CASE("to argmax minus zero equals zero, and a NaN is never greatest") {
    CHECK(argmax(row_of(std::vector<std::uint16_t>{0x8000, 0x0000}, {DType::kFloat16})) == 0);
    CHECK(argmax(row_of(std::vector<std::uint16_t>{0x7E00, 0xC000, 0xFE00}, {DType::kFloat16})) == 1);
    CHECK(argmax(row_of(std::vector<std::uint16_t>{0x7E00, 0x7E00}, {DType::kFloat16})) == 0);
    CHECK(argmax(row_of(std::vector<std::uint16_t>{0x3C00, 0x7C00, 0x4000}, {DType::kFloat16})) == 1); // infinity
}

TEST_CASE("the likelihood of one of four equal logits is a quarter") {
    const std::vector<std::uint16_t> raw = {500, 500, 500, 500};
    CHECK(negative_log_likelihood(row_of(raw, {DType::kUFixed16, 0.1, 7}), 2) == Approx(std::log(4.0)).epsilon(1e-14));
}

TEST_CASE("the likelihood is that of the dequantised logits") {
    // logits 0, ln 2, ln 4 need a fine scale; here 0, 1 and 2: softmax of 2 is 1 / (1 + e^-1 + e^-2)
    const std::vector<std::uint8_t> raw = {10, 20, 30};
    const double expected = std::log(1 + std::exp(-1.0) + std::exp(-2.0));
    CHECK(negative_log_likelihood(row_of(raw, {DType::kUFixed8, 0.1, 10}), 2) == Approx(expected).epsilon(1e-12));
    CHECK(negative_log_likelihood(row_of(raw, {DType::kUFixed8, 0.1, 10}), 0) == Approx(expected + 2).epsilon(1e-12));
}

TEST_CASE("large logits do not overflow the likelihood") {
    const std::vector<float> raw = {30000, 29999};
    CHECK(negative_log_likelihood(row_of(raw, {DType::kFloat32}), 1) ==
          Approx(1 + std::log1p(std::exp(-1.0))).epsilon(1e-12));
}

TEST_CASE("logits that are not finite give a likelihood that is not finite") {
    CHECK(std::isnan(negative_log_likelihood(row_of(std::vector<std::uint16_t>{0x7E00, 0}, {DType::kFloat16}), 1)));
    CHECK_FALSE(
        std::isfinite(negative_log_likelihood(row_of(std::vector<std::uint16_t>{0x7C00, 0}, {DType::kFloat16}), 1)));
    CHECK(std::isinf(negative_log_likelihood(row_of(std::vector<std::uint16_t>{0xFC00, 0}, {DType::kFloat16}), 0)));
}
