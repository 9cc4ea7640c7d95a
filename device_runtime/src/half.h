// IEEE 754 binary16 ("float16") as raw bits, without help from the compiler or the CPU.
#pragma once

#include <cstdint>

namespace snapgate {

// Nearest, ties to even. Overflow gives infinity, underflow a subnormal or a signed zero; a NaN stays a NaN.
std::uint16_t half_from_float(float value) noexcept;

// Exact: every float16 is a float32.
float float_from_half(std::uint16_t bits) noexcept;

} // namespace snapgate
