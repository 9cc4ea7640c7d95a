#include "attention_mask.h"

namespace snapgate {

AttentionMask::AttentionMask(std::byte* mask, const Encoding& encoding, double mask_value, std::uint32_t n_tokens,
                             std::uint32_t context_length) noexcept
    : mask_(mask), element_bytes_(encoding.element_bytes()), visible_(encoding.encode(0.0F)),
      masked_(encoding.encode(static_cast<float>(mask_value))), n_tokens_(n_tokens), context_length_(context_length) {
    const std::uint32_t first_own = context_length - n_tokens;
    for (std::uint32_t row = 0; row < n_tokens; ++row) {
        fill_columns(row, 0, first_own, masked_);
        fill_columns(row, first_own, first_own + row + 1, visible_);
        fill_columns(row, first_own + row + 1, context_length, masked_);
    }
}

void AttentionMask::fill_columns(std::uint32_t row, std::uint32_t first, std::uint32_t end,
                                 std::uint32_t raw) noexcept {
    const std::size_t index = static_cast<std::size_t>(row) * context_length_ + first;
    fill_raw(mask_ + index * element_bytes_, end - first, element_bytes_, raw);
}

void AttentionMask::show_past(std::uint32_t n_past) noexcept {
    for (std::uint32_t row = 0; row < n_tokens_; ++row) {
        if (n_past > n_past_) {
            fill_columns(row, n_past_, n_past, visible_);
        } else {
            fill_columns(row, n_past, n_past_, masked_);
        }
    }
    n_past_ = n_past;
}

} // namespace snapgate
