// snapgate-phone: runs a program and all that it starts inside a root of its own, without namespaces and without
// privileges.
//
// The programs are traced (ptrace), stopped by a seccomp filter at the calls that name files or processes, and those
// calls are changed to the host's names. The tracer's end is the end of all of them, however it ends.
//
//   snapgate-phone [--mount ro|rw SOURCE TARGET]... [--mount-tables FOLDER] [--identity N] [--storage FOLDER BYTES]
//                  [--setenv NAME VALUE]... -- PROGRAM [ARGUMENT]...
#include "filter.h"
#include "phone.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/capability.h>
#include <string>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

using pathmap::Options;
using pathmap::Phone;

constexpr int kCannotRun = 125;

volatile sig_atomic_t stop_requested = 0;

void request_stop(int) { stop_requested = 1; }

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "snapgate-phone: %s: %s\n", what, std::strerror(errno));
    std::_Exit(kCannotRun);
}

// A phone's shell has no capability; root's would let it past the modes of its own files.
void drop_capabilities() {
    for (unsigned long capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
        ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    if (::syscall(SYS_capset, &header, none) != 0)
        fail("cannot give up capabilities");
}

[[noreturn]] void become_first(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                               bool with_storage, int ready) {
    char go = 0;
    if (::read(ready, &go, 1) != 1)
        std::_Exit(kCannotRun);
    ::close(ready);
    // It inherits the orphans of the phone, as process 1 does.
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        fail("cannot become the reaper of orphans");
    drop_capabilities();
    std::vector<char*> arguments;
    for (const std::string& word : words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::vector<char*> settings;
    for (const std::string& setting : environment)
        settings.push_back(const_cast<char*>(setting.c_str()));
    settings.push_back(nullptr);
    if (!pathmap::install_filter(with_storage))
        fail("cannot install a seccomp filter");
    if (::chdir("/") != 0)
        fail("cannot enter the phone's root");
    ::execve(arguments[0], arguments.data(), settings.data());
    fail(arguments[0]);
}

int run(Options options, const std::vector<std::string>& words, const std::vector<std::string>& environment,
        pid_t parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        fail("cannot follow the parent process");
    if (::getppid() != parent)
        std::_Exit(kCannotRun);
    struct sigaction action{};
    action.sa_handler = request_stop;
    ::sigaction(SIGTERM, &action, nullptr);
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0)
        fail("cannot make a pipe");
    const pid_t first = ::fork();
    if (first < 0)
        fail("cannot fork");
    if (first == 0) {
        ::signal(SIGTERM, SIG_DFL);
        ::close(ready[1]);
        become_first(words, environment, options.storage.is_limited(), ready[0]);
    }
    constexpr long kTrace = PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                            PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD;
    if (::ptrace(PTRACE_SEIZE, first, nullptr, reinterpret_cast<void*>(kTrace)) != 0)
        fail("cannot trace a process of its own");
    if (::write(ready[1], "g", 1) != 1)
        fail("cannot start the program");
    // Sockets that were handed down belong to the program; they must close when it ends.
    ::syscall(SYS_close_range, 3u, ~0u, 0u);
    return Phone(std::move(options), first).run(stop_requested);
}

int usage() {
    std::fputs("snapgate-phone: wrong arguments; see the head of main.cpp\n", stderr);
    return 2;
}

} // namespace

int main(int count, char** values) {
    const pid_t parent = ::getppid();
    const std::vector<std::string> words(values + 1, values + count);
    Options options;
    std::vector<std::string> environment;
    std::size_t at = 0;
    for (; at < words.size() && words[at] != "--";) {
        const std::string& name = words[at];
        const std::size_t left = words.size() - at - 1;
        if (name == "--mount" && left >= 3) {
            options.layout.add({words[at + 3], words[at + 2], words[at + 1] == "rw"});
            at += 4;
        } else if (name == "--mount-tables" && left >= 1) {
            options.mount_tables = words[at + 1];
            at += 2;
        } else if (name == "--identity" && left >= 1) {
            options.identity = static_cast<unsigned>(std::strtoul(words[at + 1].c_str(), nullptr, 10));
            at += 2;
        } else if (name == "--storage" && left >= 2) {
            options.storage = pathmap::Storage(words[at + 1], std::strtoull(words[at + 2].c_str(), nullptr, 10));
            at += 3;
        } else if (name == "--setenv" && left >= 2) {
            environment.push_back(words[at + 1] + "=" + words[at + 2]);
            at += 3;
        } else {
            return usage();
        }
    }
    if (at + 1 >= words.size())
        return usage();
    return run(std::move(options), {words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end()}, environment,
               parent);
}
