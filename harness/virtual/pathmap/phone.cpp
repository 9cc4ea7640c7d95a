#include "phone.h"

#include "calls.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pathmap {
namespace {

int event_of(int status) { return status >> 16; }

bool stops_a_group(int signal) {
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

} // namespace

int Phone::run(const volatile int& stop) {
    tasks_[first_];
    bool ending = false;
    while (true) {
        if (stop != 0 && !ending) {
            ending = true;
            kill_all();
        }
        int status = 0;
        const pid_t thread = ::waitpid(-1, &status, __WALL);
        if (thread < 0) {
            if (errno == EINTR)
                continue;
            return exit_code_;
        }
        if (WIFSTOPPED(status)) {
            handle_stop(thread, status);
            continue;
        }
        tasks_.erase(thread);
        if (thread == first_) {
            exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            ending = true;
            kill_all();
        }
    }
}

void Phone::kill_all() {
    for (const auto& [thread, task] : tasks_)
        ::kill(thread, SIGKILL);
}

void Phone::handle_stop(pid_t thread, int status) {
    Task& task = tasks_[thread];
    const int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        leave(thread, task);
        return resume(thread, task, 0);
    }
    unsigned long message = 0;
    switch (event_of(status)) {
    case 0:
        return resume(thread, task, signal);
    case PTRACE_EVENT_SECCOMP:
        enter(thread, task);
        return resume(thread, task, 0);
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        if (::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &message) == 0)
            tasks_[static_cast<pid_t>(message)];
        return resume(thread, task, 0);
    case PTRACE_EVENT_EXEC:
        if (::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &message) == 0) {
            const auto former = static_cast<pid_t>(message);
            if (former != thread) {
                task = tasks_[former];
                tasks_.erase(former);
            }
        }
        task.process = thread;
        task.replaced = true;
        return resume(thread, task, 0);
    case PTRACE_EVENT_STOP:
        if (stops_a_group(signal)) {
            ::ptrace(PTRACE_LISTEN, thread, nullptr, nullptr);
            return;
        }
        return resume(thread, task, 0);
    default:
        return resume(thread, task, 0);
    }
}

void Phone::resume(pid_t thread, const Task& task, int signal) {
    const auto request = task.changed ? PTRACE_SYSCALL : PTRACE_CONT;
    ::ptrace(request, thread, nullptr, reinterpret_cast<void*>(static_cast<std::intptr_t>(signal)));
}

void Phone::enter(pid_t thread, Task& task) {
    Registers registers{};
    if (!read_registers(thread, registers))
        return;
    task.entry = registers;
    task.changed = false;
    task.replaced = false;
    if (const Call* call = find_call(static_cast<long>(registers.orig_rax)); call != nullptr)
        enter_path_call(thread, task, registers, *call);
    else
        enter_other_call(thread, task, registers);
}

void Phone::wait_for_exit(Task& task, After after, std::uint64_t answer) {
    task.changed = true;
    task.after = after;
    task.answer = answer;
}

// The call is left out, and the program gets `value` (or minus an errno).
void Phone::answer(pid_t thread, Registers& registers, long value) {
    registers = tasks_[thread].entry;
    registers.orig_rax = static_cast<unsigned long long>(-1);
    registers.rax = static_cast<unsigned long long>(value);
    write_registers(thread, registers);
}

void Phone::leave(pid_t thread, Task& task) {
    if (!task.changed)
        return;
    task.changed = false;
    if (task.replaced)
        return;
    Registers registers{};
    if (!read_registers(thread, registers))
        return;
    for (int index = 0; index < 6; ++index)
        argument(registers, index) = argument(task.entry, index);
    const auto result = static_cast<long>(registers.rax);
    if (result >= 0) {
        switch (task.after) {
        case After::restore:
            break;
        case After::owner:
        case After::owner_statx:
            hide_owner(thread, task.answer, task.after == After::owner_statx);
            break;
        case After::names:
            if (!hide_processes(thread, registers, task.answer)) {
                // Nothing of this part is to be seen: make the call once more for the next part.
                registers.rax = task.entry.orig_rax;
                registers.rip -= 2;
            }
            break;
        case After::file_system:
            show_size(thread, task.answer);
            break;
        }
    }
    write_registers(thread, registers);
}

Walker Phone::walker(pid_t thread, Task& task) const {
    return Walker{options_.layout, *this, options_.mount_tables, process_of(thread, task), thread};
}

pid_t Phone::process_of(pid_t thread, Task& task) const {
    if (task.process == 0) {
        std::ifstream status("/proc/" + std::to_string(thread) + "/status");
        for (std::string line; std::getline(status, line);)
            if (line.compare(0, 5, "Tgid:") == 0)
                task.process = static_cast<pid_t>(std::strtol(line.c_str() + 5, nullptr, 10));
    }
    return task.process;
}

std::string Phone::descriptor_path(pid_t thread, int descriptor) const {
    char buffer[PATH_MAX];
    const std::string link = "/proc/" + std::to_string(thread) +
                             (descriptor < 0 ? std::string("/cwd") : "/fd/" + std::to_string(descriptor));
    const ssize_t size = ::readlink(link.c_str(), buffer, sizeof buffer);
    return size < 0 ? std::string() : std::string(buffer, static_cast<std::size_t>(size));
}

} // namespace pathmap
