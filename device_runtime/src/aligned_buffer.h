// Memory for a graph tensor: aligned to 128 bytes and padded to a multiple of 128, as the Hexagon backend requires.
#pragma once

#include "result.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace snapgate {

constexpr std::size_t kTensorAlignment = 128;

constexpr std::uint64_t round_up_to_alignment(std::uint64_t n_bytes) noexcept {
    return (n_bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

class AlignedBuffer {
  public:
    AlignedBuffer() = default;

    // Zeroed, so every page is present before it is first used. OUT_OF_MEMORY names `purpose`.
    static Result<AlignedBuffer> allocate(std::uint64_t n_bytes, const char* purpose);

    std::byte* data() const noexcept { return memory_.get(); }

    std::size_t size() const noexcept { return size_; }

  private:
    struct Free {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };

    std::unique_ptr<std::byte, Free> memory_;
    std::size_t size_ = 0; // as asked for; the padding behind it is ours too
};

} // namespace snapgate
