#include "rpc_memory.h"

#include "checked.h"

#include <utility>

namespace snapgate {
namespace {

constexpr int kSystemHeap = 25; // RPCMEM_HEAP_ID_SYSTEM
constexpr std::uint32_t kCached = 1;

template <typename Function>
void probe(const qnn::SharedLibrary& library, const char* name, Function& function) noexcept {
    function = reinterpret_cast<Function>(library.symbol(name));
}

} // namespace

Result<RpcMemory> RpcMemory::open(const std::string& path) {
    auto library = qnn::SharedLibrary::open(path);
    if (!library) {
        return std::move(library).fault();
    }
    RpcFunctions functions;
    probe(*library, "rpcmem_alloc", functions.alloc);
    probe(*library, "rpcmem_alloc2", functions.alloc2);
    probe(*library, "rpcmem_free", functions.free);
    probe(*library, "rpcmem_to_fd", functions.to_fd);
    const char* missing = functions.alloc == nullptr && functions.alloc2 == nullptr ? "rpcmem_alloc"
                          : functions.free == nullptr                               ? "rpcmem_free"
                          : functions.to_fd == nullptr                              ? "rpcmem_to_fd"
                                                                                    : nullptr;
    if (missing != nullptr) {
        return Fault{
            ExitCode::kLibraryLoad,
            path,
            "not FastRPC's library",
            std::string("no symbol ") + missing,
            "rpcmem_alloc or rpcmem_alloc2, rpcmem_free and rpcmem_to_fd",
            "use the phone's own library",
        };
    }
    RpcMemory memory(functions);
    memory.library_.emplace(*std::move(library));
    return memory;
}

Result<std::byte*> RpcMemory::allocate(std::uint64_t n_bytes, const char* purpose) const {
    void* memory = nullptr;
    std::string found = std::to_string(n_bytes) + " bytes refused by ";
    if (functions_.alloc2 != nullptr) {
        const auto size = checked_narrow<std::size_t>(n_bytes);
        memory = size ? functions_.alloc2(kSystemHeap, kCached, *size) : nullptr;
        found += "rpcmem_alloc2";
    } else if (const auto size = checked_narrow<int>(n_bytes); size) {
        memory = functions_.alloc(kSystemHeap, kCached, *size);
        found += "rpcmem_alloc";
    } else {
        found = std::to_string(n_bytes) + " bytes, and the library has no rpcmem_alloc2";
    }
    if (memory == nullptr) {
        return Fault{
            ExitCode::kOutOfMemory, purpose, "shared memory cannot be allocated",
            std::move(found),       "",      "close other apps, or use a shorter context",
        };
    }
    return static_cast<std::byte*>(memory);
}

} // namespace snapgate
