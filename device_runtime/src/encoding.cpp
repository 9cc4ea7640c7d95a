#include "encoding.h"

#include "half.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace snapgate {
namespace {

// std::nearbyint would follow the process's rounding mode; this does not.
double round_half_to_even(double value) noexcept {
    const double below = std::floor(value);
    const double fraction = value - below;
    if (fraction > 0.5 || (fraction == 0.5 && std::fmod(below, 2.0) != 0.0)) {
        return below + 1.0;
    }
    return below;
}

std::uint32_t bits_of(float value) noexcept {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

std::int32_t as_integer(std::uint32_t raw, DType dtype) noexcept {
    switch (dtype) {
    case DType::kUFixed8:
        return static_cast<std::uint8_t>(raw);
    case DType::kUFixed16:
        return static_cast<std::uint16_t>(raw);
    case DType::kSFixed8:
        return static_cast<std::int8_t>(raw);
    case DType::kSFixed16:
        return static_cast<std::int16_t>(raw);
    default:
        return static_cast<std::int32_t>(raw);
    }
}

} // namespace

std::uint32_t Encoding::encode(float real) const noexcept {
    switch (dtype) {
    case DType::kFloat16:
        return half_from_float(real);
    case DType::kFloat32:
        return bits_of(real);
    default:
        break;
    }
    const IntegerRange range = range_of(dtype);
    const float steps = real / static_cast<float>(scale); // in float32, as ONNX defines QuantizeLinear
    const double q = round_half_to_even(static_cast<double>(steps)) + zero_point;
    const double clamped = std::isnan(q) ? zero_point : std::clamp<double>(q, range.lowest, range.highest);
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(clamped));
}

double Encoding::decode(std::uint32_t raw) const noexcept {
    switch (dtype) {
    case DType::kFloat16:
        return static_cast<double>(float_from_half(static_cast<std::uint16_t>(raw)));
    case DType::kFloat32: {
        float value = 0;
        std::memcpy(&value, &raw, sizeof value);
        return static_cast<double>(value);
    }
    default:
        return scale * (static_cast<double>(as_integer(raw, dtype)) - zero_point);
    }
}

Encoding encoding_of(const TensorSpec& spec) noexcept {
    return Encoding{spec.dtype, spec.scale.value_or(1.0), spec.zero_point.value_or(0)};
}

std::uint32_t load_raw(const std::byte* elements, std::size_t index, std::size_t element_bytes) noexcept {
    std::uint32_t raw = 0;
    std::memcpy(&raw, elements + index * element_bytes, element_bytes); // little-endian, as every target is
    return raw;
}

void store_raw(std::byte* elements, std::size_t index, std::size_t element_bytes, std::uint32_t raw) noexcept {
    std::memcpy(elements + index * element_bytes, &raw, element_bytes);
}

void fill_raw(std::byte* elements, std::size_t count, std::size_t element_bytes, std::uint32_t raw) noexcept {
    if (element_bytes == 1) {
        std::memset(elements, static_cast<int>(raw & 0xFF), count);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        store_raw(elements, i, element_bytes, raw);
    }
}

} // namespace snapgate
