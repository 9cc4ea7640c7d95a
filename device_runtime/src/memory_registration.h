// Tensor memory made known to the QNN library: a handle a tensor, in the context whose graph reads or writes it.
#pragma once

#include "aligned_buffer.h"
#include "binary_info.h"
#include "qnn_abi.h"
#include "result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace snapgate::qnn {

// Where a tensor lies: in a block of shared memory or of the heap.
struct Place {
    const AlignedBuffer* block = nullptr;
    std::byte* data = nullptr; // within the block

    std::uint64_t offset() const noexcept { return static_cast<std::uint64_t>(data - block->data()); }
};

// Owns all handles. They are given back when it goes: before the contexts, and before the memory is freed.
class MemoryRegistrations {
  public:
    explicit MemoryRegistrations(const abi::CoreTable& table) noexcept : table_(&table) {}

    // The handle of a tensor that lies in shared memory. A part of a block that is registered in the context under the
    // same dtype and dimensions is not registered twice. OUT_OF_MEMORY names graph and tensor, and carries the QNN
    // code.
    Result<abi::Handle> add(abi::Handle context, const std::string& graph, const TensorInfo& tensor,
                            const Place& place);

    std::size_t size() const noexcept { return entries_.size(); }

  private:
    struct Deregister {
        const abi::CoreTable* table = nullptr;

        void operator()(abi::Handle handle) const noexcept { table->mem_deregister(&handle, 1); }
    };

    struct Entry {
        abi::Handle context;
        int fd;
        std::uint64_t offset;
        std::uint32_t data_type;
        std::vector<std::uint32_t> dimensions;
        std::unique_ptr<void, Deregister> handle;
    };

    const abi::CoreTable* table_;
    std::vector<Entry> entries_;
};

} // namespace snapgate::qnn
