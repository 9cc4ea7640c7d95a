#include "bandwidth.h"
#include "build_info.h"
#include "command_line.h"
#include "runner.h"
#include "signals.h"

#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace snapgate;

// A stream that is closed at the start gets /dev/null: else the next file opened would take its number, and with it
// what is meant for the stream.
void open_closed_streams() noexcept {
    int fd = -1;
    do {
        fd = open("/dev/null", O_RDWR); // the lowest number that is free
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

// Records alone may go to stdout: a library that prints there is sent to stderr.
FileDescriptor take_stdout() noexcept {
    std::fflush(stdout);
    FileDescriptor records(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)); // a library may start programs
    dup2(STDERR_FILENO, STDOUT_FILENO);
    return records;
}

ExitCode execute(const ShowVersion&) {
    std::printf("snapgate-runner %s (%s, %s, %s)\n", runner_version(), abi_name(), compiler(), build_type());
    return ExitCode::kOk;
}

ExitCode execute(const UsageError& error) {
    std::fprintf(stderr, "snapgate-runner: %s\n%s", error.reason.c_str(), usage_text());
    return ExitCode::kUsage;
}

ExitCode execute(const RunJob& command) { return run_job_file(command, take_stdout()); }

ExitCode execute(const MeasureBandwidth&) { return report_bandwidth(take_stdout()); }

ExitCode execute(const Probe& command) { return probe(command, take_stdout()); }

} // namespace

int main(int argc, char** argv) {
    open_closed_streams();
    install_signal_handlers();
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    const ExitCode code =
        std::visit([](const auto& command) { return execute(command); }, parse_command_line(arguments));
    return static_cast<int>(code);
}
