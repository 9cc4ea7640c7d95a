#include "calls.h"

#include <algorithm>
#include <array>
#include <sys/syscall.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

namespace pathmap {
namespace {

constexpr PathArgument kNoPath{kNone, kNone, Follow::never, Effect::read};

constexpr Call one(long number, int folder, int path, Follow follow, Effect effect, int flags = kNone) {
    return Call{static_cast<int>(number), {folder, path, follow, effect}, kNoPath, flags};
}

constexpr Call two(long number, PathArgument first, PathArgument second, int flags = kNone) {
    return Call{static_cast<int>(number), first, second, flags};
}

constexpr std::array kCalls{
    one(SYS_open, kNone, 0, Follow::open_flags, Effect::open, 1),
    one(SYS_openat, 0, 1, Follow::open_flags, Effect::open, 2),
    one(SYS_openat2, 0, 1, Follow::open_flags, Effect::open, 2),
    one(SYS_creat, kNone, 0, Follow::always, Effect::open),
    one(SYS_stat, kNone, 0, Follow::always, Effect::read),
    one(SYS_lstat, kNone, 0, Follow::never, Effect::read),
    one(SYS_newfstatat, 0, 1, Follow::unless_flag, Effect::read, 3),
    one(SYS_statx, 0, 1, Follow::unless_flag, Effect::read, 2),
    one(SYS_access, kNone, 0, Follow::always, Effect::check),
    one(SYS_faccessat, 0, 1, Follow::always, Effect::check),
    one(SYS_faccessat2, 0, 1, Follow::unless_flag, Effect::check, 3),
    one(SYS_mkdir, kNone, 0, Follow::never, Effect::create),
    one(SYS_mkdirat, 0, 1, Follow::never, Effect::create),
    one(SYS_mknod, kNone, 0, Follow::never, Effect::create),
    one(SYS_mknodat, 0, 1, Follow::never, Effect::create),
    one(SYS_rmdir, kNone, 0, Follow::never, Effect::remove),
    one(SYS_unlink, kNone, 0, Follow::never, Effect::remove),
    one(SYS_unlinkat, 0, 1, Follow::never, Effect::remove),
    two(SYS_rename, {kNone, 0, Follow::never, Effect::remove}, {kNone, 1, Follow::never, Effect::modify}),
    two(SYS_renameat, {0, 1, Follow::never, Effect::remove}, {2, 3, Follow::never, Effect::modify}),
    two(SYS_renameat2, {0, 1, Follow::never, Effect::remove}, {2, 3, Follow::never, Effect::modify}),
    two(SYS_link, {kNone, 0, Follow::never, Effect::read}, {kNone, 1, Follow::never, Effect::create}),
    two(SYS_linkat, {0, 1, Follow::if_flag, Effect::read}, {2, 3, Follow::never, Effect::create}, 4),
    one(SYS_symlink, kNone, 1, Follow::never, Effect::create),
    one(SYS_symlinkat, 1, 2, Follow::never, Effect::create),
    one(SYS_readlink, kNone, 0, Follow::never, Effect::read),
    one(SYS_readlinkat, 0, 1, Follow::never, Effect::read),
    one(SYS_chmod, kNone, 0, Follow::always, Effect::modify),
    one(SYS_fchmodat, 0, 1, Follow::always, Effect::modify),
    one(SYS_fchmodat2, 0, 1, Follow::unless_flag, Effect::modify, 3),
    one(SYS_chown, kNone, 0, Follow::always, Effect::modify),
    one(SYS_lchown, kNone, 0, Follow::never, Effect::modify),
    one(SYS_fchownat, 0, 1, Follow::unless_flag, Effect::modify, 4),
    one(SYS_utime, kNone, 0, Follow::always, Effect::modify),
    one(SYS_utimes, kNone, 0, Follow::always, Effect::modify),
    one(SYS_futimesat, 0, 1, Follow::always, Effect::modify),
    one(SYS_utimensat, 0, 1, Follow::unless_flag, Effect::modify, 3),
    one(SYS_truncate, kNone, 0, Follow::always, Effect::modify),
    one(SYS_chdir, kNone, 0, Follow::always, Effect::read),
    one(SYS_statfs, kNone, 0, Follow::always, Effect::read),
    one(SYS_inotify_add_watch, kNone, 1, Follow::always, Effect::read),
    one(SYS_setxattr, kNone, 0, Follow::always, Effect::modify),
    one(SYS_lsetxattr, kNone, 0, Follow::never, Effect::modify),
    one(SYS_getxattr, kNone, 0, Follow::always, Effect::read),
    one(SYS_lgetxattr, kNone, 0, Follow::never, Effect::read),
    one(SYS_listxattr, kNone, 0, Follow::always, Effect::read),
    one(SYS_llistxattr, kNone, 0, Follow::never, Effect::read),
    one(SYS_removexattr, kNone, 0, Follow::always, Effect::modify),
    one(SYS_lremovexattr, kNone, 0, Follow::never, Effect::modify),
};

constexpr auto kPathNumbers = [] {
    std::array<int, kCalls.size()> numbers{};
    for (std::size_t n = 0; n < kCalls.size(); ++n)
        numbers[n] = kCalls[n].number;
    return numbers;
}();

constexpr std::array kOthers{
    SYS_execve,
    SYS_execveat,
    SYS_getcwd,
    SYS_getdents64,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_pidfd_open,
    SYS_fstat,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_fchown,
    SYS_uname,
    SYS_connect,
    SYS_bind,
};

constexpr std::array kStorage{
    SYS_write,     SYS_pwrite64,        SYS_writev,   SYS_pwritev, SYS_pwritev2, SYS_ftruncate,
    SYS_fallocate, SYS_copy_file_range, SYS_sendfile, SYS_splice,  SYS_fstatfs,
};

} // namespace

const Call* find_call(long number) {
    const auto* found =
        std::find_if(kCalls.begin(), kCalls.end(), [&](const Call& call) { return call.number == number; });
    return found == kCalls.end() ? nullptr : found;
}

Numbers path_calls() { return {kPathNumbers.data(), kPathNumbers.size()}; }

Numbers other_calls() { return {kOthers.data(), kOthers.size()}; }

Numbers storage_calls() { return {kStorage.data(), kStorage.size()}; }

} // namespace pathmap
