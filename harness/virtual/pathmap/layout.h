// Which of the phone's paths are which of the host's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pathmap {

struct Mount {
    std::string target; // on the phone, absolute, without a final slash; "/" is the root
    std::string source; // on the host, absolute
    bool writable;
};

class Layout {
  public:
    void add(Mount mount);

    // The host's path of a canonical path of the phone (absolute, no links, no "..").
    std::string to_host(std::string_view phone) const;

    // The phone's path of one of the host's; unchanged if the phone has no place for it.
    std::string to_phone(std::string_view host) const;

    bool is_writable(std::string_view phone) const;
    bool is_mount_point(std::string_view phone) const;

  private:
    const Mount* find(std::string_view phone) const;

    std::vector<Mount> mounts_; // longest target first
};

// Whether `path` is `folder` or below it.
bool is_within(std::string_view path, std::string_view folder);

} // namespace pathmap
