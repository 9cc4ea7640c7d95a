// A path as a program on the phone names it, made into the host's path, as the kernel would walk it inside a real root.
#pragma once

#include "layout.h"

#include <string>
#include <string_view>
#include <sys/types.h>

namespace pathmap {

// Who belongs to the phone. Its process 1 has another number on the host.
class Population {
  public:
    virtual ~Population() = default;
    virtual bool has(pid_t process) const = 0;
    virtual pid_t first() const = 0;
};

struct Place {
    int error = 0; // errno; 0: the other members count
    std::string phone;
    std::string host; // without links on the way; a final slash is kept
};

struct Walker {
    const Layout& layout;
    const Population& population;
    std::string mount_tables; // host folder with the files that stand for /proc/PID/mounts and mountinfo
    pid_t process;            // whose /proc/self it is
    pid_t thread;

    // `base`: the phone's path that a relative `path` starts from. `follow`: also a link at the end.
    Place resolve(std::string_view base, std::string_view path, bool follow) const;

  private:
    std::string host_of(const std::string& phone) const;
};

} // namespace pathmap
