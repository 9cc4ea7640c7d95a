#include "logits.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace snapgate {
namespace {

// A key whose order is that of the real numbers, and which is `kNan` for a NaN. +0 and -0 have equal keys.
constexpr std::int64_t kNan = std::numeric_limits<std::int64_t>::min();

std::int64_t key_of_float_bits(std::uint32_t bits, std::uint32_t sign, std::uint32_t infinity) noexcept {
    const std::uint32_t magnitude = bits & (sign - 1);
    if (magnitude > infinity) {
        return kNan;
    }
    const auto key = static_cast<std::int64_t>(magnitude);
    return (bits & sign) != 0 ? -key : key;
}

template <typename Raw, typename KeyOf>
std::int32_t argmax_by(const LogitsRow& row, KeyOf key_of) noexcept {
    std::int64_t best = kNan;
    std::uint32_t id = 0;
    for (std::uint32_t i = 0; i < row.n_columns; ++i) {
        Raw raw{};
        std::memcpy(&raw, row.elements + i * sizeof raw, sizeof raw);
        const std::int64_t key = key_of(raw);
        if (key > best) {
            best = key;
            id = i;
        }
    }
    return static_cast<std::int32_t>(id);
}

template <typename Raw>
std::int32_t argmax_integer(const LogitsRow& row) noexcept {
    return argmax_by<Raw>(row, [](Raw raw) { return static_cast<std::int64_t>(raw); });
}

} // namespace

std::int32_t argmax(const LogitsRow& row) noexcept {
    switch (row.encoding.dtype) {
    case DType::kUFixed8:
        return argmax_integer<std::uint8_t>(row);
    case DType::kUFixed16:
        return argmax_integer<std::uint16_t>(row);
    case DType::kSFixed8:
        return argmax_integer<std::int8_t>(row);
    case DType::kSFixed16:
        return argmax_integer<std::int16_t>(row);
    case DType::kInt32:
        return argmax_integer<std::int32_t>(row);
    case DType::kFloat16:
        return argmax_by<std::uint16_t>(row,
                                        [](std::uint16_t raw) { return key_of_float_bits(raw, 0x8000U, 0x7C00U); });
    case DType::kFloat32:
        return argmax_by<std::uint32_t>(
            row, [](std::uint32_t raw) { return key_of_float_bits(raw, 0x80000000U, 0x7F800000U); });
    }
    return 0;
}

double negative_log_likelihood(const LogitsRow& row, std::int32_t target) noexcept {
    const std::size_t n_bytes = row.encoding.element_bytes();
    const auto logit = [&row, n_bytes](std::size_t i) {
        return row.encoding.decode(load_raw(row.elements, i, n_bytes));
    };
    double greatest = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < row.n_columns; ++i) {
        const double value = logit(i);
        if (std::isnan(value)) {
            return value;
        }
        greatest = value > greatest ? value : greatest;
    }
    double sum = 0;
    for (std::size_t i = 0; i < row.n_columns; ++i) {
        sum += std::exp(logit(i) - greatest);
    }
    return greatest + std::log(sum) - logit(static_cast<std::size_t>(target));
}

} // namespace snapgate
