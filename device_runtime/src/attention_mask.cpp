#include "attention_mask.h"

namespace snapgate {

Result<AttentionMask> AttentionMask::create(const Encoding& encoding, double mask_value, std::uint32_t n_tokens,
                                            std::uint32_t context_length) {
    const std::uint64_t n_elements = static_cast<std::uint64_t>(n_tokens) * context_length;
    auto buffer = AlignedBuffer::allocate(n_elements * encoding.element_bytes(), "attention mask");
    if (!buffer) {
        return std::move(buffer).fault();
    }
    AttentionMask mask(*std::move(buffer), encoding.element_bytes(), encoding.encode(0.0F),
                       encoding.encode(static_cast<float>(mask_value)), n_tokens, context_length);
    const std::uint32_t first_own = context_length - n_tokens;
    for (std::uint32_t row = 0; row < n_tokens; ++row) {
        mask.fill_columns(row, 0, first_own, mask.masked_);
        mask.fill_columns(row, first_own, first_own + row + 1, mask.visible_);
        mask.fill_columns(row, first_own + row + 1, context_length, mask.masked_);
    }
    return mask;
}

void AttentionMask::fill_columns(std::uint32_t row, std::uint32_t first, std::uint32_t end,
                                 std::uint32_t raw) noexcept {
    const std::size_t index = static_cast<std::size_t>(row) * context_length_ + first;
    fill_raw(buffer_.data() + index * element_bytes_, end - first, element_bytes_, raw);
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
