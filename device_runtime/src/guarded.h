// Turns whatever the work throws into a fault: nothing in this program throws on purpose past job_parser.cpp.
#pragma once

#include "result.h"

#include <exception>
#include <new>

namespace snapgate {

template <typename Outcome, typename Work>
Outcome guarded(Work work) noexcept {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        return Fault{
            ExitCode::kOutOfMemory, "runner", "memory cannot be allocated",
            "std::bad_alloc",       "",       "close other apps, or use a shorter context",
        };
    } catch (const std::exception& error) {
        return Fault{
            ExitCode::kInternal, "runner", "an exception nobody expected",
            error.what(),        "none",   "report this with the job file",
        };
    } catch (...) {
        return Fault{
            ExitCode::kInternal, "runner", "an exception of unknown type", "", "none", "report this with the job file",
        };
    }
}

} // namespace snapgate
