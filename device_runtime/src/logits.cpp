#include "logits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace snapgate {
namespace {

// A key whose order is that of the real numbers, and which is `kNan` for a NaN. +0 and -0 have equal keys. The least
// integer has the key of a NaN, which changes nothing: whatever else there is is greater.
constexpr std::int32_t kNan = std::numeric_limits<std::int32_t>::min();

template <std::uint32_t Sign, std::uint32_t Infinity>
std::int32_t key_of_float_bits(std::uint32_t bits) noexcept {
    const std::uint32_t magnitude = bits & (Sign - 1);
    const auto key = static_cast<std::int32_t>(magnitude);
    const std::int32_t with_sign = (bits & Sign) != 0 ? -key : key;
    return magnitude > Infinity ? kNan : with_sign;
}

template <typename Raw>
Raw load(const std::byte* elements, std::size_t i) noexcept {
    Raw raw{};
    std::memcpy(&raw, elements + i * sizeof raw, sizeof raw);
    return raw;
}

// The greatest key of each block first, which the compiler makes vector instructions of; then its place in the one
// block that matters.
template <typename Raw, typename KeyOf>
std::int32_t argmax_by(const LogitsRow& row, KeyOf key_of) noexcept {
    constexpr std::size_t kBlock = 1024;
    std::int32_t best = kNan;
    std::size_t best_first = 0;
    for (std::size_t first = 0; first < row.n_columns; first += kBlock) {
        const std::size_t end = std::min<std::size_t>(first + kBlock, row.n_columns);
        std::int32_t greatest = kNan;
        for (std::size_t i = first; i < end; ++i) {
            greatest = std::max(greatest, key_of(load<Raw>(row.elements, i)));
        }
        if (greatest > best) {
            best = greatest;
            best_first = first;
        }
    }
    for (std::size_t i = best_first; i < row.n_columns; ++i) {
        if (key_of(load<Raw>(row.elements, i)) == best) {
            return static_cast<std::int32_t>(i);
        }
    }
    return 0;
}

template <typename Raw>
std::int32_t argmax_integer(const LogitsRow& row) noexcept {
    return argmax_by<Raw>(row, [](Raw raw) { return static_cast<std::int32_t>(raw); });
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
        return argmax_by<std::uint16_t>(row, key_of_float_bits<0x8000U, 0x7C00U>);
    case DType::kFloat32:
        return argmax_by<std::uint32_t>(row, key_of_float_bits<0x80000000U, 0x7F800000U>);
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
