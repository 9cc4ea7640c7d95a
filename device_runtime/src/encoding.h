// Real numbers to and from the raw elements of a tensor.
#pragma once

#include "tensor_spec.h"

#include <cstddef>
#include <cstdint>

namespace snapgate {

struct Encoding {
    DType dtype = DType::kFloat32;
    double scale = 1.0;          // fixed-point types only
    std::int32_t zero_point = 0; // fixed-point types only

    std::size_t element_bytes() const noexcept { return bytes_of(dtype); }

    // The raw element for a real number, in the low bits: nearest (ties to even), clamped to the type's range.
    std::uint32_t encode(float real) const noexcept;

    // The real number of a raw element.
    double decode(std::uint32_t raw) const noexcept;
};

Encoding encoding_of(const TensorSpec& spec) noexcept;

// Raw element `index` of an array of 1, 2 or 4 byte elements.
std::uint32_t load_raw(const std::byte* elements, std::size_t index, std::size_t element_bytes) noexcept;
void store_raw(std::byte* elements, std::size_t index, std::size_t element_bytes, std::uint32_t raw) noexcept;
void fill_raw(std::byte* elements, std::size_t count, std::size_t element_bytes, std::uint32_t raw) noexcept;

} // namespace snapgate
