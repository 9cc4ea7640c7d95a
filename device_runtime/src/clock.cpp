#include "clock.h"

#include <ctime>

namespace snapgate {
namespace {

std::int64_t read(clockid_t id) noexcept {
    timespec now{};
    clock_gettime(id, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(now.tv_nsec);
}

} // namespace

std::int64_t monotonic_ns() noexcept { return read(CLOCK_MONOTONIC); }

ClockReading read_clocks() noexcept {
    return ClockReading{read(CLOCK_MONOTONIC), read(CLOCK_BOOTTIME), read(CLOCK_REALTIME)};
}

} // namespace snapgate
