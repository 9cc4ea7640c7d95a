// How the process reacts to signals. SIGTERM, SIGINT and SIGHUP ask it to end after the current step or load phase. A
// crash (most likely inside the QNN library) leaves one line on stderr with the place, then takes its usual course.
#pragma once

#include "result.h"

#include <csignal>

namespace snapgate {

// SIGPIPE and SIGXFSZ are ignored from here on: a closed stdout or a full file shows up as a failed write.
void install_signal_handlers() noexcept;

bool stop_requested() noexcept;

// TERMINATED, with what is given up, once a stop was asked for.
Status terminated_if_asked(const char* where);

// What is to be given back even when the process ends in the middle of a call: a power vote. One at a time; null: none.
using EmergencyRelease = void (*)() noexcept;
void set_emergency_release(EmergencyRelease release) noexcept;

// Calls it once. A call that does not return within a second ends the process as it would have ended without.
void run_emergency_release() noexcept;

// Blocks the signals that are meant for the thread that works, for its lifetime: threads started meanwhile inherit it.
class SignalsBlocked {
  public:
    SignalsBlocked() noexcept;
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked();

  private:
    sigset_t before_;
};

} // namespace snapgate
