// Arithmetic on sizes that come from a file: a result that does not fit is reported, never wrapped or cut.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace snapgate {

inline std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) {
        return std::nullopt;
    }
    return product;
}

// The value as a `To`, or nothing where `To` cannot hold it.
template <typename To, typename From>
constexpr std::optional<To> checked_narrow(From value) noexcept {
    const To narrowed = static_cast<To>(value);
    if (static_cast<From>(narrowed) != value || (narrowed < To{}) != (value < From{})) {
        return std::nullopt;
    }
    return narrowed;
}

} // namespace snapgate
