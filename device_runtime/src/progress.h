// What the process is doing, kept in atomics that any thread or signal handler may read: for the crash line, the
// heartbeat and the watchdog. One thread, the one that does the work, writes.
#pragma once

#include <cstdint>

namespace snapgate {

// Whether the watchdog minds how long this takes. Waiting for a reader or for the next paced token takes as long as it
// takes.
enum class Watch { kNo, kYes };

struct Progress {
    const char* phase = "";
    unsigned long step = 0;
    std::uint64_t epoch = 0; // grows with every change, also of `watched`
    std::uint64_t begun = 0; // how many phases and steps have begun
    bool watched = false;
};

// `phase` outlives the process's interest in it (a literal).
void set_progress(const char* phase, unsigned long step, Watch watch) noexcept;
Progress read_progress() noexcept;

// What is watched goes on with a call of its own: its deadline begins anew.
void renew_deadline() noexcept;

// For its lifetime the watchdog looks away; then the phase goes on as if it had just begun.
class Unwatched {
  public:
    Unwatched() noexcept;
    Unwatched(const Unwatched&) = delete;
    Unwatched& operator=(const Unwatched&) = delete;
    ~Unwatched();

  private:
    bool was_watched_;
};

} // namespace snapgate
