#include "aligned_buffer.h"

#include "heap_counter.h"

#include <cstdlib>
#include <cstring>
#include <limits>

namespace snapgate {

void AlignedBuffer::Free::operator()(std::byte* memory) const noexcept {
    if (source != nullptr) {
        source->free(memory);
    } else {
        std::free(memory);
    }
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::uint64_t n_bytes, const char* purpose) {
    return allocate(n_bytes, purpose, nullptr);
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::uint64_t n_bytes, const char* purpose, const RpcMemory* source) {
    const auto refused = [purpose](const char* what, std::string found, std::string expected) {
        return Fault{
            ExitCode::kOutOfMemory,
            purpose,
            what,
            std::move(found),
            std::move(expected),
            "close other apps, or use a shorter context",
        };
    };
    if (n_bytes > std::numeric_limits<std::size_t>::max() / 2) {
        return refused("memory cannot be allocated", std::to_string(n_bytes) + " bytes refused", "");
    }
    AlignedBuffer buffer;
    buffer.size_ = static_cast<std::size_t>(n_bytes);
    buffer.padded_size_ = round_up_to_alignment(n_bytes > 0 ? n_bytes : 1);
    if (source != nullptr) {
        auto memory = source->allocate(buffer.padded_size_, purpose);
        if (!memory) {
            return std::move(memory).fault();
        }
        buffer.memory_ = {*memory, Free{source}};
        buffer.fd_ = source->to_fd(*memory);
        if (buffer.fd_ < 0) {
            return refused("shared memory cannot be named to the DSP",
                           "rpcmem_to_fd gives " + std::to_string(buffer.fd_), "a file descriptor");
        }
        // Unsigned, and the low bits alone: the top byte may be a tag.
        if (const auto rest = reinterpret_cast<std::uintptr_t>(*memory) % kTensorAlignment; rest != 0) {
            return refused("shared memory is not aligned", std::to_string(rest) + " bytes behind a multiple of 128",
                           "a multiple of 128");
        }
    } else {
        void* memory = nullptr;
        if (posix_memalign(&memory, kTensorAlignment, buffer.padded_size_) != 0) {
            return refused("memory cannot be allocated", std::to_string(n_bytes) + " bytes refused", "");
        }
        buffer.memory_ = {static_cast<std::byte*>(memory), Free{nullptr}};
    }
    count_heap_allocation();
    std::memset(buffer.data(), 0, buffer.padded_size_);
    return buffer;
}

} // namespace snapgate
