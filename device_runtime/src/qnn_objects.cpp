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

abi::PowerConfig burst_clocks(std::uint32_t id) noexcept {
    abi::PowerConfig config{};
    config.option = abi::kPowerDcvsV3;
    abi::DcvsV3& dcvs = config.dcvs;
    dcvs.context_id = id;
    dcvs.set_dcvs_enable = 1; // and dcvs_enable stays 0: clocks do not follow the load
    dcvs.power_mode = abi::kPowerModePerformance;
    dcvs.set_sleep_latency = 1;
    dcvs.sleep_latency_us = 40;
    dcvs.set_bus = 1;
    dcvs.bus_min = dcvs.bus_target = dcvs.bus_max = abi::kCornerMax;
    dcvs.set_core = 1;
    dcvs.core_min = dcvs.core_target = dcvs.core_max = abi::kCornerMax;
    return config;
}

abi::PowerConfig microseconds_config(abi::PowerOption option, std::uint32_t microseconds) noexcept {
    abi::PowerConfig config{};
    config.option = option;
    config.microseconds = microseconds;
    return config;
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
    if (error_number(code) != 0) {
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
    if (error_number(code) != 0) {
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
    if (error_number(code) != 0) {
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

PowerVote PowerVote::burst(const abi::CoreTable& table) {
    constexpr std::uint32_t kRpcLatencyUs = 40;
    constexpr std::uint32_t kRpcPollingUs = 9999; // the highest value the library takes

    PowerVote vote;
    const abi::HtpInfrastructure* infrastructure = nullptr;
    abi::ErrorCode code = table.device_get_infrastructure(&infrastructure);
    if (error_number(code) == 0 && infrastructure != nullptr &&
        infrastructure->type == abi::kInfrastructurePerformance && infrastructure->create_power_config_id != nullptr &&
        infrastructure->destroy_power_config_id != nullptr && infrastructure->set_power_config != nullptr) {
        code = infrastructure->create_power_config_id(0, 0, &vote.id_);
        if (error_number(code) == 0) {
            vote.infrastructure_ = infrastructure;
        }
    }
    if (vote.infrastructure_ == nullptr) {
        log_line("warning", std::string("no power votes on this platform: ") + error_name(code));
        vote.accepted_ = false;
        return vote;
    }
    const std::pair<const char*, abi::PowerConfig> votes[] = {
        {"clocks", burst_clocks(vote.id_)},
        {"RPC latency", microseconds_config(abi::kPowerRpcLatency, kRpcLatencyUs)},
        {"RPC polling", microseconds_config(abi::kPowerRpcPolling, kRpcPollingUs)},
    };
    for (const auto& [name, config] : votes) { // one by one, so that a refusal names its option
        const abi::PowerConfig* configs[] = {&config, nullptr};
        code = infrastructure->set_power_config(vote.id_, configs);
        if (error_number(code) != 0) {
            log_line("warning", std::string("the platform refuses the vote for ") + name + ": QNN error " +
                                    std::to_string(error_number(code)) + " " + error_name(code));
            vote.accepted_ = false;
        }
    }
    return vote;
}

PowerVote::PowerVote(PowerVote&& other) noexcept
    : infrastructure_(std::exchange(other.infrastructure_, nullptr)), id_(other.id_), accepted_(other.accepted_) {}

PowerVote& PowerVote::operator=(PowerVote&& other) noexcept {
    std::swap(infrastructure_, other.infrastructure_);
    std::swap(id_, other.id_);
    std::swap(accepted_, other.accepted_);
    return *this;
}

PowerVote::~PowerVote() {
    if (infrastructure_ != nullptr) {
        infrastructure_->destroy_power_config_id(id_);
    }
}

} // namespace snapgate::qnn
