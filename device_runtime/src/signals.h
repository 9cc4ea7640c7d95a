// How the process reacts to signals. SIGTERM, SIGINT and SIGHUP ask it to end after the current step or
// load phase. A crash (most
// likely inside the QNN library) leaves one line on stderr with the place, then takes its usual course.
#pragma once

#include "result.h"

namespace snapgate {

// SIGPIPE and SIGXFSZ are ignored from here on: a closed stdout or a full file shows up as a failed write.
void install_signal_handlers() noexcept;

bool stop_requested() noexcept;

// TERMINATED, with what is given up, once a stop was asked for.
Status terminated_if_asked(const char* where);

// What is going on, for the crash line: a string that outlives the process's interest in it (a literal), and a count.
void set_crash_place(const char* what, unsigned long step) noexcept;

} // namespace snapgate
