#include "power_vote.h"

#include "log.h"
#include "qnn_codes.h"
#include "signals.h"

#include <atomic>
#include <string>
#include <utility>

namespace snapgate::qnn {
namespace {

struct Clocks {
    PerformanceMode mode;
    bool follow_load; // DCVS
    std::uint32_t power_mode;
    std::uint32_t corner; // of bus and core
    std::uint32_t sleep_latency_us;
    std::uint32_t rpc_latency_us; // 0: no vote
    std::uint32_t rpc_polling_us; // 0: no vote
};

// Corners, latencies and the first three modes' polling are those that public runtimes on QNN vote for.
constexpr Clocks kModes[] = {
    {PerformanceMode::kBurst, false, abi::kPowerModePerformance, abi::kCornerMax, 40, 40, 9999},
    {PerformanceMode::kSustainedHighPerformance, false, abi::kPowerModePerformance, abi::kCornerMax, 40, 40, 9999},
    {PerformanceMode::kHighPerformance, false, abi::kPowerModePerformance, abi::kCornerTurbo, 100, 100, 9999},
    {PerformanceMode::kBalanced, true, abi::kPowerModePerformance, abi::kCornerNominalPlus, 1000, 0, 0},
    {PerformanceMode::kLowBalanced, true, abi::kPowerModePerformance, abi::kCornerNominal, 1000, 0, 0},
    {PerformanceMode::kHighPowerSaver, true, abi::kPowerModePerformance, abi::kCornerSvsPlus, 1000, 0, 0},
    {PerformanceMode::kPowerSaver, true, abi::kPowerModePerformance, abi::kCornerSvs, 1000, 0, 0},
    {PerformanceMode::kLowPowerSaver, true, abi::kPowerModePerformance, abi::kCornerSvs2, 1000, 0, 0},
    {PerformanceMode::kExtremePowerSaver, true, abi::kPowerModePowerSaver, abi::kCornerDisable, 1000, 0, 0},
};

// What emergency_release() gives back. The id is written before the pointer that says there is one.
std::atomic<const abi::HtpInfrastructure*> held{nullptr};
std::atomic<std::uint32_t> held_id{0};

void emergency_release() noexcept {
    if (const auto* infrastructure = held.exchange(nullptr, std::memory_order_acq_rel)) {
        infrastructure->destroy_power_config_id(held_id.load(std::memory_order_relaxed));
    }
}

abi::PowerConfig clocks_config(const Clocks& clocks, std::uint32_t id) noexcept {
    abi::PowerConfig config{};
    config.option = abi::kPowerDcvsV3;
    abi::DcvsV3& dcvs = config.dcvs;
    dcvs.context_id = id;
    dcvs.set_dcvs_enable = 1;
    dcvs.dcvs_enable = clocks.follow_load ? 1 : 0;
    dcvs.power_mode = clocks.power_mode;
    dcvs.set_sleep_latency = 1;
    dcvs.sleep_latency_us = clocks.sleep_latency_us;
    dcvs.set_bus = 1;
    dcvs.bus_min = dcvs.bus_target = dcvs.bus_max = clocks.corner;
    dcvs.set_core = 1;
    dcvs.core_min = dcvs.core_target = dcvs.core_max = clocks.corner;
    return config;
}

abi::PowerConfig microseconds_config(abi::PowerOption option, std::uint32_t microseconds) noexcept {
    abi::PowerConfig config{};
    config.option = option;
    config.microseconds = microseconds;
    return config;
}

std::string clocks_text(const Clocks& clocks) {
    return "corner " + std::to_string(clocks.corner) + ", power mode " + std::to_string(clocks.power_mode) +
           (clocks.follow_load ? ", by load" : ", fixed") + ", sleep latency " +
           std::to_string(clocks.sleep_latency_us) + " us";
}

} // namespace

PowerVote PowerVote::cast(const abi::CoreTable& table, PerformanceMode mode, const JobOptions& options,
                          std::vector<ControlSetting>& settings) {
    PowerVote vote;
    if (mode == PerformanceMode::kDefault) {
        return vote;
    }
    Clocks clocks{};
    for (const Clocks& candidate : kModes) {
        if (candidate.mode == mode) {
            clocks = candidate;
        }
    }
    clocks.sleep_latency_us = options.sleep_latency_us.value_or(clocks.sleep_latency_us);
    clocks.rpc_polling_us = options.rpc_polling_us.value_or(clocks.rpc_polling_us);

    const abi::HtpInfrastructure* infrastructure = nullptr;
    abi::ErrorCode code = table.device_get_infrastructure(&infrastructure);
    if (error_number(code) == 0 && infrastructure != nullptr &&
        infrastructure->type == abi::kInfrastructurePerformance && infrastructure->create_power_config_id != nullptr &&
        infrastructure->destroy_power_config_id != nullptr && infrastructure->set_power_config != nullptr) {
        code = infrastructure->create_power_config_id(0, 0, &vote.id_);
        if (error_number(code) == 0) {
            vote.infrastructure_ = infrastructure;
            held_id.store(vote.id_, std::memory_order_relaxed);
            held.store(infrastructure, std::memory_order_release);
            set_emergency_release(emergency_release);
        }
    }
    if (vote.infrastructure_ == nullptr) {
        log_line("warning", std::string("no power votes on this platform: ") + error_name(code));
        settings.push_back({"clocks", clocks_text(clocks), false, {}, code});
        return vote;
    }
    const auto ask = [&](const char* name, std::string asked, const abi::PowerConfig& config) {
        const abi::PowerConfig* configs[] = {&config, nullptr};
        const abi::ErrorCode answer = infrastructure->set_power_config(vote.id_, configs);
        const bool accepted = error_number(answer) == 0;
        if (!accepted) {
            log_line("warning", std::string("the platform refuses the vote for ") + name + ": QNN error " +
                                    std::to_string(error_number(answer)) + " " + error_name(answer));
        }
        settings.push_back(
            {name, std::move(asked), accepted, {}, accepted ? std::nullopt : std::optional<std::uint64_t>(answer)});
    };
    ask("clocks", clocks_text(clocks), clocks_config(clocks, vote.id_));
    if (clocks.rpc_latency_us != 0) {
        ask("rpc_latency", std::to_string(clocks.rpc_latency_us) + " us",
            microseconds_config(abi::kPowerRpcLatency, clocks.rpc_latency_us));
    }
    if (clocks.rpc_polling_us != 0) {
        ask("rpc_polling", std::to_string(clocks.rpc_polling_us) + " us",
            microseconds_config(abi::kPowerRpcPolling, clocks.rpc_polling_us));
    }
    return vote;
}

PowerVote::PowerVote(PowerVote&& other) noexcept
    : infrastructure_(std::exchange(other.infrastructure_, nullptr)), id_(other.id_) {}

PowerVote& PowerVote::operator=(PowerVote&& other) noexcept {
    std::swap(infrastructure_, other.infrastructure_);
    std::swap(id_, other.id_);
    return *this;
}

PowerVote::~PowerVote() {
    if (infrastructure_ != nullptr && held.exchange(nullptr, std::memory_order_acq_rel) != nullptr) {
        set_emergency_release(nullptr);
        infrastructure_->destroy_power_config_id(id_);
    }
}

} // namespace snapgate::qnn
