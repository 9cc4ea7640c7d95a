// Text put together without allocation, where the heap may be locked by a thread that never returns: in signal
// handlers and in the watchdog. What does not fit is cut off.
#pragma once

#include <array>
#include <cstddef>

namespace snapgate {

class FixedText {
  public:
    FixedText& put(const char* text) noexcept {
        while (*text != '\0' && size_ < text_.size()) {
            text_[size_++] = *text++;
        }
        return *this;
    }

    FixedText& put(unsigned long number) noexcept {
        std::array<char, 24> digits{};
        std::size_t i = digits.size() - 1;
        do {
            digits[--i] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number != 0);
        return put(digits.data() + i);
    }

    const char* data() const noexcept { return text_.data(); }

    std::size_t size() const noexcept { return size_; }

  private:
    std::array<char, 1536> text_{};
    std::size_t size_ = 0;
};

} // namespace snapgate
