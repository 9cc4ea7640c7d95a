#include "memory_registration.h"

#include "qnn_codes.h"

namespace snapgate::qnn {

Result<abi::Handle> MemoryRegistrations::add(abi::Handle context, const std::string& graph, const TensorInfo& tensor,
                                             const Place& place) {
    const int fd = place.block->fd();
    const std::uint64_t offset = place.offset();
    for (const Entry& entry : entries_) {
        if (entry.context == context && entry.fd == fd && entry.offset == offset &&
            entry.data_type == tensor.data_type && entry.dimensions == tensor.dimensions) {
            return entry.handle.get();
        }
    }
    const std::string where = graph + "/" + tensor.name;
    const char* next_step = "none: plain memory is used instead";
    if (table_->mem_register == nullptr || table_->mem_deregister == nullptr) {
        return Fault{
            ExitCode::kOutOfMemory, where, "the library registers no memory", "no memRegister", "", next_step,
        };
    }
    Entry entry{context, fd, offset, tensor.data_type, tensor.dimensions, {nullptr, {table_}}};
    const abi::HtpSharedBuffer shared{abi::kHtpMemSharedBuffer, 0, place.block->padded_size(), fd, 0, offset};
    abi::MemDescriptor descriptor{};
    descriptor.n_dimensions = static_cast<std::uint32_t>(entry.dimensions.size());
    descriptor.dimensions = entry.dimensions.data();
    descriptor.data_type = tensor.data_type;
    descriptor.mem_type = abi::kMemDescriptorCustom;
    descriptor.custom = &shared;
    abi::Handle handle = nullptr;
    const abi::ErrorCode code = table_->mem_register(context, &descriptor, 1, &handle);
    if (error_number(code) != 0 || handle == nullptr) {
        return call_fault(ExitCode::kOutOfMemory, where, "memRegister", code, next_step);
    }
    entry.handle.reset(handle);
    entries_.push_back(std::move(entry)); // the vector's buffer moves with it: the library may keep the dimensions
    return handle;
}

} // namespace snapgate::qnn
