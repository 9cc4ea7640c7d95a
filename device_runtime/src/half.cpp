#include "half.h"

#include <cstring>

namespace snapgate {
namespace {

std::uint32_t bits_of(float value) noexcept {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(std::uint32_t bits) noexcept {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// value >> shift, rounded to nearest, ties to even.
std::uint32_t shift_right_rounding(std::uint32_t value, std::uint32_t shift) noexcept {
    const std::uint32_t quotient = value >> shift;
    const std::uint32_t remainder = value & ((1U << shift) - 1);
    const std::uint32_t half = 1U << (shift - 1);
    const bool up = remainder > half || (remainder == half && (quotient & 1) != 0);
    return quotient + (up ? 1 : 0);
}

} // namespace

std::uint16_t half_from_float(float value) noexcept {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t exponent = (bits >> 23) & 0xFF;
    const std::uint32_t mantissa = bits & 0x7FFFFF;
    if (exponent == 0xFF) { // infinity, or NaN with its quiet bit set
        const std::uint32_t nan = mantissa == 0 ? 0 : 0x200 | (mantissa >> 13);
        return static_cast<std::uint16_t>(sign | 0x7C00 | nan);
    }
    std::uint32_t magnitude = 0;
    if (exponent >=
        113) { // normal: rebias 127 to 15; a carry out of the mantissa moves into the exponent, as it should
        magnitude = shift_right_rounding(((exponent - 112) << 23) | mantissa, 13);
        if (magnitude > 0x7C00) {
            magnitude = 0x7C00;
        }
    } else if (exponent >= 102) { // subnormal: units of 2^-24
        magnitude = shift_right_rounding(0x800000 | mantissa, 126 - exponent);
    }
    return static_cast<std::uint16_t>(sign | magnitude);
}

float float_from_half(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1F;
    const std::uint32_t mantissa = bits & 0x3FF;
    if (exponent == 0x1F) {
        return float_of(sign | 0x7F800000 | (mantissa << 13));
    }
    if (exponent == 0) { // zero or subnormal: mantissa * 2^-24, exact in float32
        const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-08F;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

} // namespace snapgate
