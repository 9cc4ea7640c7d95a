// Calls that name files.
#include "calls.h"
#include "phone.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace pathmap {
namespace {

constexpr int kMaxScripts = 5;
constexpr std::size_t kMaxArguments = 1u << 17;

// The interpreter and its one optional argument; empty if the file does not begin with "#!".
struct Script {
    std::string interpreter;
    std::string option;
};

Script read_script(const std::string& host) {
    Script script;
    char head[256];
    const int file = ::open(host.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return script;
    const ssize_t size = ::read(file, head, sizeof head);
    ::close(file);
    if (size < 2 || head[0] != '#' || head[1] != '!')
        return script;
    std::string line(head + 2, static_cast<std::size_t>(size) - 2);
    line.resize(std::min(line.find('\n'), line.size()));
    const char* blank = " \t";
    const std::size_t start = line.find_first_not_of(blank);
    if (start == std::string::npos)
        return script;
    const std::size_t end = std::min(line.find_first_of(blank, start), line.size());
    script.interpreter = line.substr(start, end - start);
    const std::size_t option = line.find_first_not_of(blank, end);
    if (option != std::string::npos)
        script.option = line.substr(option, line.find_last_not_of(blank) - option + 1);
    return script;
}

bool follows(Follow follow, unsigned long long flags) {
    switch (follow) {
    case Follow::always:
        return true;
    case Follow::never:
        return false;
    case Follow::unless_flag:
        return (flags & AT_SYMLINK_NOFOLLOW) == 0;
    case Follow::if_flag:
        return (flags & AT_SYMLINK_FOLLOW) != 0;
    case Follow::open_flags:
        return (flags & O_NOFOLLOW) == 0 && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
    }
    return true;
}

bool exists(const std::string& host, struct stat& found) { return ::lstat(host.c_str(), &found) == 0; }

} // namespace

std::optional<std::string> Phone::folder_of(pid_t thread, const Registers& registers, int argument_index) const {
    int descriptor = AT_FDCWD;
    if (argument_index != kNone) {
        Registers copy = registers;
        descriptor = static_cast<int>(argument(copy, argument_index));
    }
    const std::string host = descriptor_path(thread, descriptor == AT_FDCWD ? -1 : descriptor);
    if (host.empty() || host.front() != '/')
        return std::nullopt;
    return options_.layout.to_phone(host);
}

// Puts the host's path in place of the phone's. False: the call was answered, or has to go on as it is.
bool Phone::prepare_path(pid_t thread, Task& task, Registers& registers, const Call& call, const PathArgument& which,
                         Scratch& scratch, bool& changed, Place& place) {
    const std::uint64_t address = argument(registers, which.path);
    if (address == 0)
        return false;
    const std::optional<std::string> path = read_string(thread, address, PATH_MAX);
    if (!path || path->empty())
        return false;
    std::string base = "/";
    if (path->front() != '/') {
        const std::optional<std::string> folder = folder_of(thread, registers, which.folder);
        if (!folder)
            return false;
        base = *folder;
    }
    unsigned long long flags = call.flags == kNone ? 0 : argument(registers, call.flags);
    if (call.number == SYS_openat2 && !read_memory(thread, flags, &flags, sizeof flags))
        return false;
    if (call.number == SYS_creat)
        flags = O_CREAT | O_WRONLY | O_TRUNC;
    place = walker(thread, task).resolve(base, *path, follows(which.follow, flags));
    const int error = place.error != 0 ? place.error : forbidden(thread, registers, call, which, place);
    if (error != 0) {
        answer(thread, registers, -error);
        return false;
    }
    if (place.host == *path)
        return true;
    const std::uint64_t copy = scratch.put(place.host);
    if (copy == 0) {
        answer(thread, registers, -EFAULT);
        return false;
    }
    argument(registers, which.path) = copy;
    changed = true;
    return true;
}

// The errno that a read-only file system or a mount point would give; 0 if the kernel may judge.
int Phone::forbidden(pid_t thread, Registers& registers, const Call& call, const PathArgument& which,
                     const Place& place) {
    if (which.effect == Effect::read)
        return 0;
    if (which.effect == Effect::remove && options_.layout.is_mount_point(place.phone))
        return EBUSY;
    if (options_.layout.is_writable(place.phone))
        return 0;
    struct stat found{};
    const bool there = exists(place.host, found);
    switch (which.effect) {
    case Effect::read:
        return 0;
    case Effect::create:
        return there ? 0 : EROFS;
    case Effect::remove:
    case Effect::modify:
        return there || call.number == SYS_rename || call.number == SYS_renameat || call.number == SYS_renameat2 ? EROFS
                                                                                                                 : 0;
    case Effect::check:
        return there && (argument(registers, call.number == SYS_access ? 1 : 2) & W_OK) != 0 &&
                       (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))
                   ? EROFS
                   : 0;
    case Effect::open:
        break;
    }
    unsigned long long flags = call.flags == kNone ? O_CREAT | O_WRONLY : argument(registers, call.flags);
    if (call.number == SYS_openat2)
        read_memory(thread, flags, &flags, sizeof flags);
    if (!there)
        return (flags & O_CREAT) != 0 ? EROFS : 0;
    const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))) != 0;
    return writes && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)) ? EROFS : 0;
}

void Phone::enter_path_call(pid_t thread, Task& task, Registers& registers, const Call& call) {
    Scratch scratch(thread, registers);
    bool changed = false;
    Place place;
    const bool ready = prepare_path(thread, task, registers, call, call.first, scratch, changed, place);
    if (static_cast<long>(registers.orig_rax) == -1)
        return; // answered
    if (ready && call.second.path != kNone) {
        prepare_path(thread, task, registers, call, call.second, scratch, changed, place);
        if (static_cast<long>(registers.orig_rax) == -1)
            return;
    }
    const long number = call.number;
    if (ready && (number == SYS_readlink || number == SYS_readlinkat) && place.phone.compare(0, 6, "/proc/") == 0)
        return answer_readlink(thread, registers, place, number == SYS_readlink ? 1 : 2);
    After after = After::restore;
    std::uint64_t result = 0;
    if (options_.identity != 0) {
        if (number == SYS_stat || number == SYS_lstat || number == SYS_newfstatat) {
            after = After::owner;
            result = argument(registers, number == SYS_newfstatat ? 2 : 1);
        } else if (number == SYS_statx) {
            after = After::owner_statx;
            result = argument(registers, 4);
        } else if (number == SYS_chown || number == SYS_lchown || number == SYS_fchownat) {
            const int user = number == SYS_fchownat ? 2 : 1;
            translate_owner(registers, user, user + 1);
            changed = true;
        }
    }
    if (ready && number == SYS_statfs && options_.storage.holds(place.host)) {
        after = After::file_system;
        result = argument(registers, 1);
    }
    if (changed)
        write_registers(thread, registers);
    if (changed || after != After::restore)
        wait_for_exit(task, after, result);
}

// Links below /proc/PID lead to the host's paths; what they say is made the phone's.
void Phone::answer_readlink(pid_t thread, Registers& registers, const Place& place, int buffer) {
    // The kernel must resolve /proc/self for the program, not for this process.
    if (place.phone == "/proc/self" || place.phone == "/proc/thread-self" || place.phone == "/proc/mounts")
        return;
    char text[PATH_MAX];
    const ssize_t size = ::readlink(place.host.c_str(), text, sizeof text);
    if (size < 0)
        return answer(thread, registers, -errno);
    std::string shown(text, static_cast<std::size_t>(size));
    if (!shown.empty() && shown.front() == '/')
        shown = options_.layout.to_phone(shown);
    const std::size_t length = std::min(shown.size(), static_cast<std::size_t>(argument(registers, buffer + 1)));
    if (!write_memory(thread, argument(registers, buffer), shown.data(), length))
        return answer(thread, registers, -EFAULT);
    answer(thread, registers, static_cast<long>(length));
}

// The kernel would look a script's interpreter up on the host: it is started by name instead.
void Phone::enter_execve(pid_t thread, Task& task, Registers& registers, int folder, int path) {
    static const Call program{kNone, {kNone, 0, Follow::always, Effect::read}, {}, kNone};
    static const Call program_at{kNone, {0, 1, Follow::always, Effect::read}, {}, kNone};
    const Call& call = folder == kNone ? program : program_at;
    const int arguments_at = path + 1;
    const std::optional<std::string> named = read_string(thread, argument(registers, path), PATH_MAX);
    Scratch scratch(thread, registers);
    bool changed = false;
    Place place;
    if (!prepare_path(thread, task, registers, call, call.first, scratch, changed, place))
        return;
    std::vector<std::string> front;
    std::string current = *named;
    for (int depth = 0;; ++depth) {
        const Script script = read_script(place.host);
        if (script.interpreter.empty())
            break;
        struct stat found{};
        if (depth == kMaxScripts)
            return answer(thread, registers, -ELOOP);
        if (::stat(place.host.c_str(), &found) != 0 || (found.st_mode & 0111) == 0 || !S_ISREG(found.st_mode))
            return answer(thread, registers, -EACCES);
        if (!front.empty())
            front.erase(front.begin()); // the interpreter is itself a script: its own name stands at the next place
        std::vector<std::string> begin{script.interpreter};
        if (!script.option.empty())
            begin.push_back(script.option);
        begin.push_back(current);
        front.insert(front.begin(), begin.begin(), begin.end());
        current = script.interpreter;
        std::string base = "/";
        if (script.interpreter.front() != '/')
            base = folder_of(thread, registers, kNone).value_or("/");
        place = walker(thread, task).resolve(base, script.interpreter, true);
        if (place.error != 0)
            return answer(thread, registers, -place.error);
    }
    // The kernel names a process after the link, not after what the link leads to.
    if (front.empty() && current.front() == '/') {
        const std::size_t slash = current.rfind('/');
        const Place parent = walker(thread, task).resolve("/", current.substr(0, slash + 1), true);
        char real[PATH_MAX];
        const std::string unresolved = parent.host + current.substr(slash + 1);
        if (parent.error == 0 && ::realpath(unresolved.c_str(), real) != nullptr && place.host == real)
            place.host = unresolved;
    } else if (!front.empty()) {
        std::vector<std::uint64_t> pointers;
        for (const std::string& word : front)
            pointers.push_back(scratch.put(word));
        std::uint64_t old = argument(registers, arguments_at);
        std::uint64_t value = 0;
        for (bool first = true; old != 0; first = false, old += sizeof value) {
            if (!read_memory(thread, old, &value, sizeof value))
                return answer(thread, registers, -EFAULT);
            if (value == 0)
                break;
            if (!first)
                pointers.push_back(value);
            if (pointers.size() > kMaxArguments)
                return answer(thread, registers, -E2BIG);
        }
        pointers.push_back(0);
        argument(registers, arguments_at) = scratch.put(pointers.data(), pointers.size() * sizeof value);
        if (argument(registers, arguments_at) == 0)
            return answer(thread, registers, -E2BIG);
    }
    argument(registers, path) = scratch.put(place.host);
    if (argument(registers, path) == 0)
        return answer(thread, registers, -EFAULT);
    write_registers(thread, registers);
    wait_for_exit(task, After::restore, 0);
}

void Phone::show_size(pid_t thread, std::uint64_t address) const {
    struct statfs found{};
    if (!read_memory(thread, address, &found, sizeof found))
        return;
    constexpr unsigned kBlock = 4096;
    const std::uint64_t used = std::min(options_.storage.count(), options_.storage.limit());
    found.f_bsize = kBlock;
    found.f_frsize = kBlock;
    found.f_blocks = options_.storage.limit() / kBlock;
    found.f_bfree = (options_.storage.limit() - used) / kBlock;
    found.f_bavail = found.f_bfree;
    write_memory(thread, address, &found, sizeof found);
}

} // namespace pathmap
