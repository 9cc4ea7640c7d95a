// The additive attention mask of one AR-N graph, (1, 1, N, CL): 0 where a token may be looked at, the model's mask
// value where not. For CL = 8, N = 3 and 2 tokens in the cache ("." may be looked at, "x" may not):
//
//     column     0 1 2 3 4 | 5 6 7        columns 0 .. CL-N-1: the cache; the last N: this step's own tokens
//     row 0      . . x x x | . x x
//     row 1      . . x x x | . . x
//     row 2      . . x x x | . . .
//
// A padding row sees at least itself, so no row is masked throughout.
#pragma once

#include "encoding.h"

#include <cstddef>
#include <cstdint>

namespace snapgate {

class AttentionMask {
  public:
    // `mask` (n_tokens * context_length elements) is borrowed, and filled for an empty cache.
    AttentionMask(std::byte* mask, const Encoding& encoding, double mask_value, std::uint32_t n_tokens,
                  std::uint32_t context_length) noexcept;

    // Makes exactly the first `n_past` cache columns visible. Touches only the columns that change.
    void show_past(std::uint32_t n_past) noexcept;

  private:
    void fill_columns(std::uint32_t row, std::uint32_t first, std::uint32_t end, std::uint32_t raw) noexcept;

    std::byte* mask_;
    std::size_t element_bytes_;
    std::uint32_t visible_; // raw
    std::uint32_t masked_;  // raw
    std::uint32_t n_tokens_;
    std::uint32_t context_length_;
    std::uint32_t n_past_ = 0;
};

} // namespace snapgate
