#include "resolve.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace pathmap {
namespace {

constexpr int kMaxLinks = 40;

// The components of `path`, in front of those still to walk (the next one is last).
void push_components(std::vector<std::string>& todo, std::string_view path) {
    const auto size = static_cast<std::ptrdiff_t>(todo.size());
    std::size_t start = 0;
    while (start < path.size()) {
        const std::size_t end = std::min(path.find('/', start), path.size());
        if (end > start)
            todo.emplace_back(path.substr(start, end - start));
        start = end + 1;
    }
    std::reverse(todo.begin() + size, todo.end());
}

bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string parent_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

// /proc/PID and below, where links lead to open files whatever their text says.
bool is_of_a_process(const std::string& phone) {
    return phone.size() > 6 && phone.compare(0, 6, "/proc/") == 0 &&
           std::isdigit(static_cast<unsigned char>(phone[6])) != 0;
}

bool read_link(const std::string& host, std::string& text) {
    char buffer[PATH_MAX];
    const ssize_t size = ::readlink(host.c_str(), buffer, sizeof buffer);
    if (size < 0)
        return false;
    text.assign(buffer, static_cast<std::size_t>(size));
    return true;
}

Place failure(int error) {
    Place place;
    place.error = error;
    return place;
}

} // namespace

std::string Walker::host_of(const std::string& phone) const {
    if (is_of_a_process(phone)) {
        const std::string name = phone.substr(phone.rfind('/') + 1);
        if (name == "mounts" || name == "mountinfo")
            return mount_tables + "/" + name;
    }
    return layout.to_host(phone);
}

Place Walker::resolve(std::string_view base, std::string_view path, bool follow) const {
    if (path.empty())
        return failure(ENOENT);
    const bool wants_folder = path.back() == '/' || path == "." || path == ".." ||
                              (path.size() > 2 && path.compare(path.size() - 2, 2, "/.") == 0);
    std::string at = path.front() == '/' ? "/" : std::string(base);
    std::vector<std::string> todo;
    push_components(todo, path);
    int links = 0;
    while (!todo.empty()) {
        const std::string name = std::move(todo.back());
        todo.pop_back();
        const bool last = todo.empty();
        if (name == ".")
            continue;
        if (name == "..") {
            at = parent_of(at);
            continue;
        }
        std::string next = at == "/" ? "/" + name : at + "/" + name;
        if (at == "/proc") {
            if (name == "self" && !(last && !follow && !wants_folder)) {
                at = "/proc/" + std::to_string(process);
                continue;
            }
            if (name == "thread-self" && !(last && !follow && !wants_folder)) {
                at = "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread);
                continue;
            }
            if (is_number(name)) {
                const pid_t number = static_cast<pid_t>(std::stol(name));
                if (number == 1)
                    next = "/proc/" + std::to_string(population.first());
                else if (!population.has(number))
                    return failure(ENOENT);
            }
        }
        const bool follows = !last || follow || wants_folder;
        if (last && !follows) {
            at = std::move(next);
            break;
        }
        const std::string host = host_of(next);
        struct stat found{};
        if (::lstat(host.c_str(), &found) != 0) {
            if (!last || errno != ENOENT)
                return failure(errno);
            at = std::move(next);
            break;
        }
        if (S_ISLNK(found.st_mode)) {
            std::string text;
            if (is_of_a_process(next)) {
                if (last) {
                    at = std::move(next);
                    break;
                }
                if (!read_link(host, text) || text.empty() || text.front() != '/')
                    return failure(ENOTDIR);
                at = layout.to_phone(text);
                continue;
            }
            if (++links > kMaxLinks)
                return failure(ELOOP);
            if (!read_link(host, text) || text.empty())
                return failure(ENOENT);
            if (text.front() == '/')
                at = "/";
            push_components(todo, text);
            continue;
        }
        if (!last && !S_ISDIR(found.st_mode))
            return failure(ENOTDIR);
        at = std::move(next);
    }
    Place place;
    place.host = host_of(at);
    if (path.back() == '/' && place.host.back() != '/')
        place.host += '/';
    place.phone = std::move(at);
    return place;
}

} // namespace pathmap
