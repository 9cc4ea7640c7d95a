#include "cpu_affinity.h"

#include "log.h"

#include <cerrno>
#include <cstring>
#include <sched.h>
#include <string>

namespace snapgate {
namespace {

std::string text_of(const cpu_set_t& set) {
    std::string text;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(static_cast<std::size_t>(core), &set)) {
            text += (text.empty() ? "" : ",") + std::to_string(core);
        }
    }
    return text;
}

} // namespace

ControlSetting bind_to_cores(const std::vector<std::uint32_t>& cores) {
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const std::uint32_t core : cores) {
        CPU_SET(core, &wanted); // the job has fewer than CPU_SETSIZE
    }
    ControlSetting setting{"cpu_affinity", text_of(wanted), true, {}, {}};
    if (sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
        log_line("warning", "the system refuses cores " + setting.asked + ": " + std::strerror(errno));
        setting.accepted = false;
    }
    cpu_set_t now;
    CPU_ZERO(&now);
    if (sched_getaffinity(0, sizeof now, &now) == 0) {
        setting.in_force = text_of(now);
        setting.accepted = setting.accepted && CPU_EQUAL(&now, &wanted) != 0; // some of them may be switched off
    }
    return setting;
}

} // namespace snapgate
