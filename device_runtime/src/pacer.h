// Holds decode steps back to a given rate, for the trade of speed against heat.
#pragma once

#include "progress.h"

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace snapgate {

class Pacer {
  public:
    // 0: steps are not held back.
    explicit Pacer(double tokens_per_second) noexcept
        : interval_ns_(tokens_per_second > 0 ? static_cast<std::int64_t>(1e9 / tokens_per_second) : 0) {}

    // The first step may begin one interval after `now_ns`.
    void begin(std::int64_t now_ns) noexcept { due_ns_ = now_ns + interval_ns_; }

    // Sleeps until the next step may begin, or until a signal comes; the nanoseconds slept. A step that is late already
    // begins at once, and what it lost is not made up.
    std::int64_t wait(std::int64_t (*clock)() noexcept) noexcept {
        if (interval_ns_ == 0) {
            return 0;
        }
        const std::int64_t before = clock();
        if (before >= due_ns_) {
            due_ns_ = before + interval_ns_;
            return 0;
        }
        const Unwatched until_due;
        const timespec due{static_cast<time_t>(due_ns_ / 1'000'000'000), static_cast<long>(due_ns_ % 1'000'000'000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
        due_ns_ += interval_ns_;
        return clock() - before;
    }

  private:
    std::int64_t interval_ns_;
    std::int64_t due_ns_ = 0;
};

} // namespace snapgate
