// The phone: all processes that the first one started, and what each of their system calls is made into.
#pragma once

#include "resolve.h"
#include "storage.h"
#include "tracee.h"

#include <map>
#include <optional>
#include <string>

namespace pathmap {

struct Call;
struct PathArgument;

struct Options {
    Layout layout;
    std::string mount_tables;
    unsigned identity = 0; // uid and gid that programs see instead of this user's; 0: this user's own
    Storage storage{"", 0};
};

class Phone final : public Population {
  public:
    Phone(Options options, pid_t first) : options_(std::move(options)), first_(first) {}

    // Until the first process has ended; kills the others then. `stop` is looked at whenever a signal arrives.
    // Returns the exit code of the first process, 128 + n after signal n.
    int run(const volatile int& stop);

    bool has(pid_t process) const override { return tasks_.count(process) != 0; }

    pid_t first() const override { return first_; }

  private:
    enum class After { restore, owner, owner_statx, names, file_system };

    // One thread. Between the entry and the exit of a call that was changed, `changed` holds.
    struct Task {
        pid_t process = 0; // 0: not looked up yet
        bool changed = false;
        bool replaced = false; // by execve
        After after = After::restore;
        std::uint64_t answer = 0; // address
        Registers entry{};
    };

    void handle_stop(pid_t thread, int status);
    void resume(pid_t thread, const Task& task, int signal);
    void kill_all();

    void enter(pid_t thread, Task& task);
    void leave(pid_t thread, Task& task);
    void wait_for_exit(Task& task, After after, std::uint64_t answer);
    void answer(pid_t thread, Registers& registers, long value);

    void enter_path_call(pid_t thread, Task& task, Registers& registers, const Call& call);
    bool prepare_path(pid_t thread, Task& task, Registers& registers, const Call& call, const PathArgument& which,
                      Scratch& scratch, bool& changed, Place& place);
    int forbidden(pid_t thread, Registers& registers, const Call& call, const PathArgument& which, const Place& place);
    void enter_other_call(pid_t thread, Task& task, Registers& registers);
    void enter_execve(pid_t thread, Task& task, Registers& registers, int folder, int path);
    void enter_signal_call(pid_t thread, Task& task, Registers& registers);
    void enter_storage_call(pid_t thread, Task& task, Registers& registers);
    void answer_readlink(pid_t thread, Registers& registers, const Place& place, int buffer);
    void translate_owner(Registers& registers, int user, int group) const;
    void hide_owner(pid_t thread, std::uint64_t address, bool statx) const;
    bool hide_processes(pid_t thread, Registers& registers, std::uint64_t buffer);
    void show_size(pid_t thread, std::uint64_t address) const;

    Walker walker(pid_t thread, Task& task) const;
    std::optional<std::string> folder_of(pid_t thread, const Registers& registers, int argument_index) const;
    std::string descriptor_path(pid_t thread, int descriptor) const;
    pid_t process_of(pid_t thread, Task& task) const;
    int signal_all(pid_t caller, int signal) const;

    Options options_;
    pid_t first_;
    int exit_code_ = 0;
    std::map<pid_t, Task> tasks_;
};

} // namespace pathmap
