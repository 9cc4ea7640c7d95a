// Memory that host and DSP share: FastRPC's allocator in libcdsprpc.so, which every Snapdragon phone has, opened and
// probed at run time.
//
// Addresses are handed back to the library exactly as it gave them: an arm64 phone may tag their top byte, and the tag
// is part of the address.
#pragma once

#include "qnn_library.h"
#include "result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace snapgate {

constexpr const char* kRpcLibrary = "libcdsprpc.so";

// The functions of the library that are used; `alloc` or `alloc2` may be null.
struct RpcFunctions {
    void* (*alloc)(int heap, std::uint32_t flags, int n_bytes) = nullptr; // under 2 GiB
    void* (*alloc2)(int heap, std::uint32_t flags, std::size_t n_bytes) = nullptr;
    void (*free)(void* memory) = nullptr;
    int (*to_fd)(void* memory) = nullptr;
};

class RpcMemory {
  public:
    // LIBRARY_LOAD: the library does not load, or lacks a function that is needed.
    static Result<RpcMemory> open(const std::string& path);

    explicit RpcMemory(const RpcFunctions& functions) noexcept : functions_(functions) {}

    // By rpcmem_alloc2 where there is one. OUT_OF_MEMORY names `purpose` and what was refused.
    Result<std::byte*> allocate(std::uint64_t n_bytes, const char* purpose) const;

    void free(std::byte* memory) const noexcept { functions_.free(memory); }

    // The DMA-buf behind a block; it belongs to the library. Negative: there is none.
    int to_fd(std::byte* memory) const noexcept { return functions_.to_fd(memory); }

  private:
    std::optional<qnn::SharedLibrary> library_;
    RpcFunctions functions_;
};

} // namespace snapgate
