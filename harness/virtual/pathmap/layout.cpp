#include "layout.h"

#include <algorithm>

namespace pathmap {

bool is_within(std::string_view path, std::string_view folder) {
    if (folder == "/")
        return true;
    return path.substr(0, folder.size()) == folder && (path.size() == folder.size() || path[folder.size()] == '/');
}

void Layout::add(Mount mount) {
    mounts_.push_back(std::move(mount));
    std::stable_sort(mounts_.begin(), mounts_.end(),
                     [](const Mount& a, const Mount& b) { return a.target.size() > b.target.size(); });
}

const Mount* Layout::find(std::string_view phone) const {
    const auto found = std::find_if(mounts_.begin(), mounts_.end(),
                                    [&](const Mount& mount) { return is_within(phone, mount.target); });
    return found == mounts_.end() ? nullptr : &*found;
}

std::string Layout::to_host(std::string_view phone) const {
    const Mount* mount = find(phone);
    if (mount == nullptr)
        return std::string(phone);
    const std::string_view rest = phone.substr(mount->target == "/" ? 0 : mount->target.size());
    return rest == "/" ? mount->source : mount->source + std::string(rest);
}

std::string Layout::to_phone(std::string_view host) const {
    const Mount* best = nullptr;
    for (const Mount& mount : mounts_)
        if (is_within(host, mount.source) && (best == nullptr || mount.source.size() > best->source.size()))
            best = &mount;
    if (best == nullptr)
        return std::string(host);
    const std::string_view rest = host.substr(best->source.size());
    if (best->target == "/")
        return rest.empty() ? "/" : std::string(rest);
    return best->target + std::string(rest);
}

bool Layout::is_writable(std::string_view phone) const {
    const Mount* mount = find(phone);
    return mount != nullptr && mount->writable;
}

bool Layout::is_mount_point(std::string_view phone) const {
    return std::any_of(mounts_.begin(), mounts_.end(), [&](const Mount& mount) { return mount.target == phone; });
}

} // namespace pathmap
