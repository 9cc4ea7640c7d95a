// Calls that name no file: identity, processes, listings, sockets, and the size of the storage.
#include "calls.h"
#include "phone.h"

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <set>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <vector>

namespace pathmap {
namespace {

// struct stat: st_uid, st_gid behind it; struct statx: stx_uid, stx_gid behind it.
constexpr std::uint64_t kStatOwner = 28;
constexpr std::uint64_t kStatxOwner = 20;

// struct linux_dirent64: d_ino, d_off, d_reclen (2 bytes), d_type (1 byte), d_name.
constexpr std::size_t kEntryLength = 16;
constexpr std::size_t kEntryName = 19;

bool is_number(const char* text) {
    return *text != '\0' && std::strspn(text, "0123456789") == std::strlen(text) && std::strlen(text) < 10;
}

} // namespace

void Phone::enter_other_call(pid_t thread, Task& task, Registers& registers) {
    const long number = static_cast<long>(registers.orig_rax);
    const bool disguised = options_.identity != 0;
    switch (number) {
    case SYS_execve:
        return enter_execve(thread, task, registers, kNone, 0);
    case SYS_execveat:
        return enter_execve(thread, task, registers, 0, 1);
    case SYS_getcwd: {
        const std::string host = descriptor_path(thread, -1);
        const std::string shown = options_.layout.to_phone(host);
        if (host.empty() || (host.size() > 10 && host.compare(host.size() - 10, 10, " (deleted)") == 0))
            return answer(thread, registers, -ENOENT);
        if (shown.size() + 1 > argument(registers, 1))
            return answer(thread, registers, -ERANGE);
        if (!write_memory(thread, argument(registers, 0), shown.c_str(), shown.size() + 1))
            return answer(thread, registers, -EFAULT);
        return answer(thread, registers, static_cast<long>(shown.size() + 1));
    }
    case SYS_getdents64:
        if (descriptor_path(thread, static_cast<int>(argument(registers, 0))) == "/proc")
            wait_for_exit(task, After::names, argument(registers, 1));
        return;
    case SYS_fstat:
        if (disguised)
            wait_for_exit(task, After::owner, argument(registers, 1));
        return;
    case SYS_getuid:
    case SYS_geteuid:
    case SYS_getgid:
    case SYS_getegid:
        return disguised ? answer(thread, registers, static_cast<long>(options_.identity)) : void();
    case SYS_getresuid:
    case SYS_getresgid:
        if (disguised) {
            for (int index = 0; index < 3; ++index)
                if (!write_memory(thread, argument(registers, index), &options_.identity, sizeof options_.identity))
                    return answer(thread, registers, -EFAULT);
            answer(thread, registers, 0);
        }
        return;
    case SYS_getgroups:
        return disguised ? answer(thread, registers, 0) : void();
    case SYS_fchown:
        if (disguised) {
            translate_owner(registers, 1, 2);
            write_registers(thread, registers);
            wait_for_exit(task, After::restore, 0);
        }
        return;
    case SYS_uname: {
        struct utsname names{};
        ::uname(&names);
        std::memset(names.nodename, 0, sizeof names.nodename);
        std::memcpy(names.nodename, "localhost", sizeof "localhost");
        const bool written = write_memory(thread, argument(registers, 0), &names, sizeof names);
        return answer(thread, registers, written ? 0 : -EFAULT);
    }
    case SYS_connect:
    case SYS_bind: {
        sockaddr_un address{};
        const std::size_t size = std::min<std::size_t>(argument(registers, 2), sizeof address);
        if (read_memory(thread, argument(registers, 1), &address, size) && address.sun_family == AF_UNIX &&
            size > offsetof(sockaddr_un, sun_path) && address.sun_path[0] != '\0')
            answer(thread, registers, number == SYS_connect ? -ENOENT : -EACCES);
        return;
    }
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill:
    case SYS_rt_sigqueueinfo:
    case SYS_rt_tgsigqueueinfo:
    case SYS_pidfd_open:
        return enter_signal_call(thread, task, registers);
    default:
        return enter_storage_call(thread, task, registers);
    }
}

// Signals reach the phone's processes only, and number 1 is the first of them.
void Phone::enter_signal_call(pid_t thread, Task& task, Registers& registers) {
    const pid_t target = static_cast<pid_t>(argument(registers, 0));
    if (target == 1) {
        argument(registers, 0) = static_cast<unsigned long long>(first_);
        write_registers(thread, registers);
        return wait_for_exit(task, After::restore, 0);
    }
    if (target > 0) {
        if (!has(target))
            answer(thread, registers, -ESRCH);
        return;
    }
    if (target == -1) {
        const int reached = signal_all(process_of(thread, task), static_cast<int>(argument(registers, 1)));
        return answer(thread, registers, reached > 0 ? 0 : -ESRCH);
    }
    if (target < 0) {
        for (const auto& entry : tasks_)
            if (::getpgid(entry.first) == -target)
                return;
        answer(thread, registers, -ESRCH);
    }
}

int Phone::signal_all(pid_t caller, int signal) const {
    int reached = 0;
    for (const auto& [thread, task] : tasks_) {
        Task copy = task;
        const bool leads = process_of(thread, copy) == thread;
        if (leads && thread != first_ && thread != caller && ::kill(thread, signal) == 0)
            ++reached;
    }
    return reached;
}

void Phone::enter_storage_call(pid_t thread, Task& task, Registers& registers) {
    const long number = static_cast<long>(registers.orig_rax);
    int descriptor = 0;
    std::uint64_t size = argument(registers, 2);
    if (number == SYS_copy_file_range || number == SYS_splice) {
        descriptor = 2;
        size = argument(registers, 4);
    } else if (number == SYS_sendfile) {
        size = argument(registers, 3);
    }
    const std::string host = descriptor_path(thread, static_cast<int>(argument(registers, descriptor)));
    if (!options_.storage.holds(host))
        return;
    if (number == SYS_fstatfs)
        return wait_for_exit(task, After::file_system, argument(registers, 1));
    if (number == SYS_writev || number == SYS_pwritev || number == SYS_pwritev2) {
        std::vector<iovec> parts(std::min<std::uint64_t>(size, IOV_MAX));
        size = 0;
        if (!read_memory(thread, argument(registers, 1), parts.data(), parts.size() * sizeof(iovec)))
            return;
        for (const iovec& part : parts)
            size += part.iov_len;
    } else if (number == SYS_ftruncate) {
        size = 0; // a hole occupies nothing yet
    } else if (number == SYS_fallocate) {
        size = argument(registers, 3);
    }
    if (!options_.storage.take(size))
        answer(thread, registers, -ENOSPC);
}

void Phone::translate_owner(Registers& registers, int user, int group) const {
    if (static_cast<unsigned>(argument(registers, user)) == options_.identity)
        argument(registers, user) = ::getuid();
    if (static_cast<unsigned>(argument(registers, group)) == options_.identity)
        argument(registers, group) = ::getgid();
}

void Phone::hide_owner(pid_t thread, std::uint64_t address, bool statx) const {
    std::array<unsigned, 2> owner{};
    address += statx ? kStatxOwner : kStatOwner;
    if (!read_memory(thread, address, owner.data(), sizeof owner))
        return;
    const bool user = owner[0] == ::getuid();
    const bool group = owner[1] == ::getgid();
    if (user)
        owner[0] = options_.identity;
    if (group)
        owner[1] = options_.identity;
    if (user || group)
        write_memory(thread, address, owner.data(), sizeof owner);
}

// Takes the host's processes out of a part of /proc's listing. False if nothing is left of it.
bool Phone::hide_processes(pid_t thread, Registers& registers, std::uint64_t buffer) {
    const auto size = static_cast<std::size_t>(registers.rax);
    if (size == 0)
        return true;
    std::vector<char> all(size);
    if (!read_memory(thread, buffer, all.data(), size))
        return true;
    std::vector<char> shown;
    for (std::size_t at = 0; at + kEntryName < size;) {
        unsigned short length = 0;
        std::memcpy(&length, all.data() + at + kEntryLength, sizeof length);
        const char* name = all.data() + at + kEntryName;
        if (!is_number(name) || has(static_cast<pid_t>(std::atol(name))))
            shown.insert(shown.end(), all.data() + at, all.data() + at + length);
        at += length;
    }
    write_memory(thread, buffer, shown.data(), shown.size());
    registers.rax = shown.size();
    return !shown.empty();
}

} // namespace pathmap
