#include "qnn_objects.h"

#include "log.h"
#include "qnn_codes.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace snapgate::qnn {
namespace {

// Called by the library, possibly from its own threads.
void on_library_log(const char* format, std::uint32_t level, std::uint64_t, __builtin_va_list arguments) noexcept {
    char text[512];
    if (format == nullptr || std::vsnprintf(text, sizeof text, format, arguments) < 0) {
        return;
    }
    log_line(level <= abi::kLogLevelError ? "qnn error" : "qnn warning", text);
}

} // namespace

Log create_log(const abi::CoreTable& table) {
    abi::Handle handle = nullptr;
    const abi::ErrorCode code = table.log_create(on_library_log, abi::kLogLevelWarning, &handle);
    if (error_number(code) != 0 || handle == nullptr) {
        log_line("note", std::string("the QNN library has no logging: ") + error_name(code));
        return Log(nullptr, {&table});
    }
    return Log(handle, {&table});
}

Result<Backend> create_backend(const abi::CoreTable& table, const Log& log) {
    abi::Handle handle = nullptr;
    const abi::ErrorCode code = table.backend_create(log.get(), nullptr, &handle);
    if (error_number(code) != 0 || handle == nullptr) {
        return call_fault(ExitCode::kBackendFailed, "backend", "backendCreate", code,
                          "check that all QNN libraries come from one release");
    }
    return Backend(handle, {&table});
}

Result<Device> create_device(const abi::CoreTable& table, const Log& log, std::optional<std::uint32_t> soc_number) {
    const abi::HtpDeviceSoc soc{abi::kHtpDeviceOptionSoc, soc_number.value_or(0), soc_number.value_or(0), 0};
    abi::Config config{};
    config.option = abi::kConfigCustom;
    config.custom = &soc;
    const abi::Config* configs[] = {&config, nullptr};
    abi::Handle handle = nullptr;
    const abi::ErrorCode code = table.device_create(log.get(), soc_number ? configs : nullptr, &handle);
    if (error_number(code) != 0 || handle == nullptr) {
        return call_fault(ExitCode::kDeviceFailed, "device", "deviceCreate", code,
                          "look at the first error above: a missing skel library or a closed DSP ends here too");
    }
    return Device(handle, {&table});
}

Result<Context> create_context(const abi::CoreTable& table, const Backend& backend, const Device& device,
                               Span<const std::byte> binary, const std::string& name) {
    abi::Handle handle = nullptr;
    const abi::ErrorCode code = table.context_create_from_binary(backend.get(), device.get(), nullptr, binary.data(),
                                                                 binary.size(), &handle, nullptr);
    if (error_number(code) != 0 || handle == nullptr) {
        return call_fault(ExitCode::kContextFailed, name, "contextCreateFromBinary", code,
                          "check that the libraries are at least as new as the compiler of the artifact");
    }
    return Context(handle, {&table});
}

Result<abi::Handle> retrieve_graph(const abi::CoreTable& table, const Context& context, const std::string& name) {
    abi::Handle handle = nullptr;
    const abi::ErrorCode code = table.graph_retrieve(context.get(), name.c_str(), &handle);
    if (error_number(code) != 0 || handle == nullptr) {
        return call_fault(ExitCode::kGraphFailed, name, "graphRetrieve", code, "prepare the artifact again");
    }
    return handle;
}

ControlSetting set_priority(const abi::CoreTable& table, abi::Handle graph, const std::string& name,
                            GraphPriority priority) {
    constexpr abi::Priority kValues[] = {abi::kPriorityLow, abi::kPriorityNormal, abi::kPriorityNormalHigh,
                                         abi::kPriorityHigh}; // as GraphPriority
    ControlSetting setting{"graph_priority " + name, name_of(priority), false, {}, {}};
    if (table.graph_set_config == nullptr) {
        log_line("warning", "the library sets no priority of " + name + ": it has no such function");
        return setting;
    }
    abi::Config config{};
    config.option = abi::kGraphConfigPriority;
    config.other = kValues[static_cast<std::size_t>(priority)]; // little-endian: the low half is the enumeration
    const abi::Config* configs[] = {&config, nullptr};
    const abi::ErrorCode code = table.graph_set_config(graph, configs);
    setting.accepted = error_number(code) == 0;
    if (!setting.accepted) {
        setting.qnn_code = code;
        log_line("warning", "the platform refuses the priority of " + name + ": " + error_name(code));
    }
    return setting;
}

} // namespace snapgate::qnn
