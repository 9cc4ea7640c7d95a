// Rotary position embedding: cos and sin of every position of the context, encoded once for one graph's inputs.
#pragma once

#include "aligned_buffer.h"
#include "encoding.h"
#include "span.h"

#include <cstdint>

namespace snapgate {

class RopeTable {
  public:
    // `reals`: float32 (n_rows, row_length).
    static Result<RopeTable> create(Span<const std::byte> reals, const Encoding& encoding, std::uint32_t row_length);

    // Copies rows first .. first + n_rows - 1; the caller keeps them inside the table.
    void copy_rows(std::uint32_t first, std::uint32_t n_rows, std::byte* target) const noexcept;

  private:
    RopeTable(AlignedBuffer rows, std::size_t row_bytes) noexcept : rows_(std::move(rows)), row_bytes_(row_bytes) {}

    AlignedBuffer rows_;
    std::size_t row_bytes_;
};

} // namespace snapgate
