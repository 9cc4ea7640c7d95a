// The three clocks of a record. Durations are always differences of CLOCK_MONOTONIC.
#pragma once

#include <cstdint>

namespace snapgate {

struct ClockReading {
    std::int64_t monotonic_ns = 0;
    std::int64_t boottime_ns = 0; // goes on while the phone sleeps
    std::int64_t realtime_ns = 0;
};

std::int64_t monotonic_ns() noexcept;
ClockReading read_clocks() noexcept;

} // namespace snapgate
