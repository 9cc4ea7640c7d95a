// How the process reacts to signals. SIGTERM, SIGINT and SIGHUP ask it to end after the current step. A crash (most
// likely inside the QNN library) leaves one line on stderr with the place, then takes its usual course.
#pragma once

namespace snapgate {

// SIGPIPE is ignored from here on: a closed stdout shows up as a failed write.
void install_signal_handlers() noexcept;

bool stop_requested() noexcept;

// What is going on, for the crash line: a string that outlives the process's interest in it (a literal), and a count.
void set_crash_place(const char* what, unsigned long step) noexcept;

} // namespace snapgate
