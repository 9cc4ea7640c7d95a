// What a graph tensor is, as the job states it.
#pragma once

#include "checked.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snapgate {

enum class DType { kInt32, kFloat16, kFloat32, kUFixed8, kUFixed16, kSFixed8, kSFixed16 };

constexpr std::size_t bytes_of(DType dtype) noexcept {
    switch (dtype) {
    case DType::kUFixed8:
    case DType::kSFixed8:
        return 1;
    case DType::kFloat16:
    case DType::kUFixed16:
    case DType::kSFixed16:
        return 2;
    case DType::kInt32:
    case DType::kFloat32:
        return 4;
    }
    return 0;
}

// Fixed-point types carry a scale and a zero point.
constexpr bool is_fixed(DType dtype) noexcept {
    return dtype == DType::kUFixed8 || dtype == DType::kUFixed16 || dtype == DType::kSFixed8 ||
           dtype == DType::kSFixed16;
}

struct IntegerRange {
    std::int32_t lowest;
    std::int32_t highest;
};

// What a raw element can be, of the integer types.
constexpr IntegerRange range_of(DType dtype) noexcept {
    switch (dtype) {
    case DType::kUFixed8:
        return {0, 255};
    case DType::kUFixed16:
        return {0, 65535};
    case DType::kSFixed8:
        return {-128, 127};
    case DType::kSFixed16:
        return {-32768, 32767};
    default:
        return {INT32_MIN, INT32_MAX};
    }
}

// The names of the job file: "float16", "ufixed8", ...
const char* name_of(DType dtype) noexcept;
std::optional<DType> dtype_from_name(const std::string& name) noexcept;

struct TensorSpec {
    std::string name;
    DType dtype = DType::kInt32;
    std::vector<std::uint32_t> shape;
    std::optional<double> scale; // real = scale * (q - zero_point); set exactly for fixed-point types
    std::optional<std::int32_t> zero_point;

    // Nothing when the product does not fit 64 bits.
    std::optional<std::uint64_t> n_bytes() const noexcept;
};

std::string shape_text(const std::vector<std::uint32_t>& shape);

} // namespace snapgate
