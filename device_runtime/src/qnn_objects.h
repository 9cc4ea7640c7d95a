// One owner per QNN object. Each is a unique_ptr whose deleter makes the matching free call, so destruction order is
// the reverse of construction: profiles, contexts, power vote, device, backend, log, then the libraries.
#pragma once

#include "job.h"
#include "qnn_abi.h"
#include "qnn_library.h"
#include "records.h"
#include "result.h"
#include "span.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace snapgate::qnn {

template <abi::ErrorCode (*abi::CoreTable::*FreeSlot)(abi::Handle)>
struct FreeThrough {
    const abi::CoreTable* table = nullptr;

    void operator()(abi::Handle handle) const noexcept { (table->*FreeSlot)(handle); }
};

struct FreeContext {
    const abi::CoreTable* table = nullptr;

    void operator()(abi::Handle handle) const noexcept { table->context_free(handle, nullptr); }
};

using Log = std::unique_ptr<void, FreeThrough<&abi::CoreTable::log_free>>;
using Backend = std::unique_ptr<void, FreeThrough<&abi::CoreTable::backend_free>>;
using Device = std::unique_ptr<void, FreeThrough<&abi::CoreTable::device_free>>;
using Context = std::unique_ptr<void, FreeContext>;

// The library's errors and warnings go to stderr. Empty when the library has no logging; that is no fault.
Log create_log(const abi::CoreTable& table);

Result<Backend> create_backend(const abi::CoreTable& table, const Log& log);

// With a SoC number the device is configured for it; without, the library's own default is taken.
Result<Device> create_device(const abi::CoreTable& table, const Log& log, std::optional<std::uint32_t> soc_number);

// `binary` must stay mapped until the context is freed. `name` is the file, for messages.
Result<Context> create_context(const abi::CoreTable& table, const Backend& backend, const Device& device,
                               Span<const std::byte> binary, const std::string& name);

// The handle belongs to the context.
Result<abi::Handle> retrieve_graph(const abi::CoreTable& table, const Context& context, const std::string& name);

// Never a fault: the answer says what the platform made of it.
ControlSetting set_priority(const abi::CoreTable& table, abi::Handle graph, const std::string& name,
                            GraphPriority priority);

} // namespace snapgate::qnn
