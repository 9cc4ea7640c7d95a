#include "tracee.h"

#include <algorithm>
#include <cstring>
#include <sys/ptrace.h>
#include <sys/uio.h>

namespace pathmap {
namespace {

constexpr std::size_t kPage = 4096;

} // namespace

bool read_registers(pid_t thread, Registers& registers) {
    return ::ptrace(PTRACE_GETREGS, thread, nullptr, &registers) == 0;
}

bool write_registers(pid_t thread, const Registers& registers) {
    return ::ptrace(PTRACE_SETREGS, thread, nullptr, &registers) == 0;
}

bool read_memory(pid_t thread, std::uint64_t address, void* data, std::size_t size) {
    const iovec local{data, size};
    const iovec remote{reinterpret_cast<void*>(address), size};
    return ::process_vm_readv(thread, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

bool write_memory(pid_t thread, std::uint64_t address, const void* data, std::size_t size) {
    const iovec local{const_cast<void*>(data), size};
    const iovec remote{reinterpret_cast<void*>(address), size};
    return ::process_vm_writev(thread, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

std::optional<std::string> read_string(pid_t thread, std::uint64_t address, std::size_t limit) {
    std::string text;
    char block[kPage];
    while (text.size() < limit) {
        // Up to the end of a page: the next one may not be there.
        const std::size_t size = std::min(kPage - address % kPage, limit - text.size());
        if (!read_memory(thread, address, block, size))
            return std::nullopt;
        const void* end = std::memchr(block, 0, size);
        if (end != nullptr) {
            text.append(block, static_cast<std::size_t>(static_cast<const char*>(end) - block));
            return text;
        }
        text.append(block, size);
        address += size;
    }
    return std::nullopt;
}

unsigned long long& argument(Registers& registers, int index) {
    switch (index) {
    case 0:
        return registers.rdi;
    case 1:
        return registers.rsi;
    case 2:
        return registers.rdx;
    case 3:
        return registers.r10;
    case 4:
        return registers.r8;
    default:
        return registers.r9;
    }
}

std::uint64_t Scratch::put(const void* data, std::size_t size) {
    next_ = (next_ - size) & ~std::uint64_t{15};
    return write_memory(thread_, next_, data, size) ? next_ : 0;
}

} // namespace pathmap
