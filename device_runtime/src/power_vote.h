// A vote for clocks and latencies of the HTP, as one of the named performance modes.
#pragma once

#include "job.h"
#include "qnn_abi.h"
#include "records.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace snapgate::qnn {

// Held until destruction. A crash and the watchdog withdraw it too (signals.h), so there is one at a time.
class PowerVote {
  public:
    // Never a fault: each part is voted for by itself, and `settings` says what the platform made of it. No vote at
    // all in mode default.
    static PowerVote cast(const abi::CoreTable& table, PerformanceMode mode, const JobOptions& options,
                          std::vector<ControlSetting>& settings);

    PowerVote() = default;
    PowerVote(PowerVote&& other) noexcept;
    PowerVote& operator=(PowerVote&& other) noexcept;
    ~PowerVote();

  private:
    const abi::HtpInfrastructure* infrastructure_ = nullptr; // null: no vote is held
    std::uint32_t id_ = 0;
};

} // namespace snapgate::qnn
