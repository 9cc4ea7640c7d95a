// A stand-in for libcdsprpc.so: blocks of memfd memory, each with its descriptor. It takes FAKE_QNN_FAIL and
// FAKE_QNN_TRACE (fake_qnn/injection.h) and knows what was never freed.
#include "../fake_qnn/injection.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace standin;

struct Block {
    void* mapped; // without its tag
    std::size_t n_bytes;
    int fd;
};

std::map<void*, Block> blocks; // by the address given out

struct LeakCheck {
    ~LeakCheck() {
        if (!blocks.empty()) {
            violation(std::to_string(blocks.size()) + " blocks of shared memory were never freed", 0);
        }
    }
} leak_check;

void* with_tag(void* memory) {
#ifdef __aarch64__
    if (const std::string tag = setting("FAKE_RPC_TAG"); !tag.empty()) {
        const std::uintptr_t top = static_cast<std::uintptr_t>(std::stoul(tag)) << 56U;
        return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(memory) | top);
    }
#endif
    return memory;
}

[[maybe_unused]] void* allocate(const char* call, int heap, std::uint32_t flags, std::size_t n_bytes) {
    if (enter(call, std::to_string(n_bytes))) {
        return nullptr;
    }
    if (heap != 25 || flags != 1 || n_bytes % 128 != 0) {
        violation("shared memory asked for in an unknown way", 0);
        return nullptr;
    }
    const int fd = memfd_create("rpcmem", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(n_bytes)) != 0) {
        return nullptr;
    }
    void* mapped = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        close(fd);
        return nullptr;
    }
    void* given = with_tag(mapped);
    blocks[given] = {mapped, n_bytes, fd};
    return given;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifndef RPC_ONLY_ALLOC2
EXPORT void* rpcmem_alloc(int heap, std::uint32_t flags, int n_bytes) {
    return allocate("rpcmem_alloc", heap, flags, static_cast<std::size_t>(n_bytes));
}
#endif

#ifndef RPC_NO_ALLOC2
EXPORT void* rpcmem_alloc2(int heap, std::uint32_t flags, std::size_t n_bytes) {
    return allocate("rpcmem_alloc2", heap, flags, n_bytes);
}
#endif

EXPORT void rpcmem_free(void* memory) {
    enter("rpcmem_free");
    const auto found = blocks.find(memory);
    if (found == blocks.end()) {
        violation("shared memory freed twice, or at another address than it was given out", 0);
        return;
    }
    munmap(found->second.mapped, found->second.n_bytes);
    close(found->second.fd);
    blocks.erase(found);
}

#ifndef RPC_NO_TO_FD
EXPORT int rpcmem_to_fd(void* memory) {
    if (enter("rpcmem_to_fd")) {
        return -1;
    }
    const auto found = blocks.find(memory);
    return found == blocks.end() ? -1 : found->second.fd;
}
#endif
