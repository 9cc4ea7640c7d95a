#include "rope_table.h"

#include <cstring>

namespace snapgate {

Result<RopeTable> RopeTable::create(Span<const std::byte> reals, const Encoding& encoding, std::uint32_t row_length) {
    const std::size_t n_elements = reals.size() / sizeof(float);
    auto rows = AlignedBuffer::allocate(n_elements * encoding.element_bytes(), "RoPE table");
    if (!rows) {
        return std::move(rows).fault();
    }
    for (std::size_t i = 0; i < n_elements; ++i) {
        float real = 0;
        std::memcpy(&real, reals.data() + i * sizeof(float), sizeof real);
        store_raw(rows->data(), i, encoding.element_bytes(), encoding.encode(real));
    }
    return RopeTable(*std::move(rows), row_length * encoding.element_bytes());
}

void RopeTable::copy_rows(std::uint32_t first, std::uint32_t n_rows, std::byte* target) const noexcept {
    std::memcpy(target, rows_.data() + first * row_bytes_, n_rows * row_bytes_);
}

} // namespace snapgate
