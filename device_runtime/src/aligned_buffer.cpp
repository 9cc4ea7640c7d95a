#include "aligned_buffer.h"

#include "heap_counter.h"

#include <cstring>
#include <limits>

namespace snapgate {

Result<AlignedBuffer> AlignedBuffer::allocate(std::uint64_t n_bytes, const char* purpose) {
    AlignedBuffer buffer;
    const bool fits = n_bytes <= std::numeric_limits<std::size_t>::max() / 2;
    const std::size_t padded = fits ? round_up_to_alignment(n_bytes > 0 ? n_bytes : 1) : 0;
    void* memory = nullptr;
    if (!fits || posix_memalign(&memory, kTensorAlignment, padded) != 0) {
        return Fault{
            ExitCode::kOutOfMemory,
            purpose,
            "memory cannot be allocated",
            std::to_string(n_bytes) + " bytes refused",
            "",
            "close other apps, or use a shorter context",
        };
    }
    count_heap_allocation();
    std::memset(memory, 0, padded);
    buffer.memory_.reset(static_cast<std::byte*>(memory));
    buffer.size_ = static_cast<std::size_t>(n_bytes);
    return buffer;
}

} // namespace snapgate
