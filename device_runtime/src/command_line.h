// The command line, parsed. No option has a default that the usage text does not state.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace snapgate {

struct ShowVersion {};

struct MeasureBandwidth {};

struct RunJob {
    std::string job_file;
    std::string folder;
    bool dump_cache = false;
};

struct Probe {
    std::string backend_library;
    std::string system_library;
};

struct UsageError {
    std::string reason;
};

using Command = std::variant<ShowVersion, MeasureBandwidth, RunJob, Probe, UsageError>;

Command parse_command_line(const std::vector<std::string>& arguments);

const char* usage_text() noexcept;

} // namespace snapgate
