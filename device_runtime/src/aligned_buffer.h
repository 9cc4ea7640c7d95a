// Memory for graph tensors: aligned to 128 bytes and padded to a multiple of 128, as the Hexagon backend requires.
#pragma once

#include "result.h"
#include "rpc_memory.h"

#include <cstddef>
#include <cstdint>
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

    // The same in memory that the DSP sees, which `source` must outlive; of the heap where it is null. OUT_OF_MEMORY
    // also when the block has no file descriptor or is not aligned.
    static Result<AlignedBuffer> allocate(std::uint64_t n_bytes, const char* purpose, const RpcMemory* source);

    std::byte* data() const noexcept { return memory_.get(); }

    std::size_t size() const noexcept { return size_; }

    std::size_t padded_size() const noexcept { return padded_size_; }

    // Of shared memory; negative: of the heap. It belongs to the allocator.
    int fd() const noexcept { return fd_; }

  private:
    struct Free {
        const RpcMemory* source; // null: the heap

        void operator()(std::byte* memory) const noexcept;
    };

    std::unique_ptr<std::byte, Free> memory_{nullptr, Free{nullptr}};
    std::size_t size_ = 0; // as asked for; the padding behind it is ours too
    std::size_t padded_size_ = 0;
    int fd_ = -1;
};

} // namespace snapgate
