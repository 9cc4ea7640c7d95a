#include "filter.h"

#include "calls.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace pathmap {
namespace {

constexpr unsigned kX32Bit = 0x40000000;

// Ways around the filter, and what could reach the host's processes.
constexpr std::array kRefused{
    SYS_io_uring_setup,    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_name_to_handle_at, SYS_mount,  SYS_chroot,           SYS_open_by_handle_at,
};

sock_filter statement(int code, std::size_t value) {
    return BPF_STMT(static_cast<unsigned short>(code), static_cast<unsigned>(value));
}

sock_filter jump(int code, unsigned value, unsigned char yes, unsigned char no) {
    return BPF_JUMP(static_cast<unsigned short>(code), value, yes, no);
}

void on(std::vector<sock_filter>& program, int number, unsigned action) {
    program.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    program.push_back(statement(BPF_RET | BPF_K, action));
}

} // namespace

bool install_filter(bool with_storage) {
    std::vector<sock_filter> program{
        statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        jump(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        jump(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1),
        statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    for (const int number : path_calls())
        on(program, number, SECCOMP_RET_TRACE);
    for (const int number : other_calls())
        on(program, number, SECCOMP_RET_TRACE);
    if (with_storage)
        for (const int number : storage_calls())
            on(program, number, SECCOMP_RET_TRACE);
    for (const int number : kRefused)
        on(program, number, SECCOMP_RET_ERRNO | (number == SYS_io_uring_setup ? ENOSYS : EPERM));
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));

    sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    // Without the flag, kernels before 5.16 slow every memory access of the program down.
    return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &whole) == 0;
}

} // namespace pathmap
