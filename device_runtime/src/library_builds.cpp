#include "library_builds.h"

#include "mapped_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <link.h>
#include <new>
#include <vector>

namespace snapgate {
namespace {

constexpr std::size_t kStampDigits = 12;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The text of digits and points from `at` on.
std::string number_at(const char* begin, const char* end) {
    const char* stop = begin;
    while (stop != end && stop - begin < 64 && (is_digit(*stop) || *stop == '.')) {
        ++stop;
    }
    return {begin, stop};
}

// "2.50.40.260831140417": three numbers and a time of twelve digits.
bool is_build(const std::string& text) noexcept {
    const std::size_t last = text.rfind('.');
    return std::count(text.begin(), text.end(), '.') == 3 && last != std::string::npos &&
           text.size() - last - 1 == kStampDigits;
}

// A time YYMMDDhhmmss of this century, which few other numbers of twelve digits are.
bool is_stamp(const std::string& text) noexcept {
    const auto two = [&text](std::size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); };
    return text.size() == kStampDigits && text[0] == '2' && two(2) >= 1 && two(2) <= 12 && two(4) >= 1 &&
           two(4) <= 31 && two(6) < 24 && two(8) < 60 && two(10) < 60;
}

struct Names {
    std::vector<std::string> paths;
    bool complete = true;
};

// Called by the linker: nothing may be thrown through it.
int collect_name(dl_phdr_info* info, std::size_t, void* data) noexcept {
    auto& names = *static_cast<Names*>(data);
    const char* path = info->dlpi_name;
    const char* slash = path == nullptr ? nullptr : std::strrchr(path, '/');
    const char* base = slash == nullptr ? path : slash + 1;
    if (base != nullptr && std::strncmp(base, "libQnn", 6) == 0) {
        try {
            names.paths.emplace_back(path);
        } catch (const std::exception&) {
            names.complete = false;
        }
    }
    return names.complete ? 0 : 1;
}

} // namespace

std::string foreign_build(Span<const std::byte> content, const std::string& build_id) {
    const char* const begin = reinterpret_cast<const char*>(content.data());
    const char* const end = begin + content.size();
    bool names_own = false;
    std::string stamp;
    for (const char* at = begin; at != end;) {
        at = static_cast<const char*>(std::memchr(at, 'v', static_cast<std::size_t>(end - at)));
        if (at == nullptr) {
            break;
        }
        const std::string text = number_at(++at, end);
        if (!is_build(text)) {
            continue;
        }
        if ("v" + text != build_id) {
            return "v" + text;
        }
        names_own = true;
    }
    constexpr std::array<char, 13> kRelease = {'A', 'I', 'S', 'W', '_', 'V', 'E', 'R', 'S', 'I', 'O', 'N', ':'};
    if (names_own || std::search(begin, end, kRelease.begin(), kRelease.end()) != end) {
        return ""; // numbers of twelve digits are then some other numbers
    }
    const std::string own_stamp = build_id.substr(build_id.rfind('.') + 1);
    for (const char* at = begin; at != end;) { // "\0 2..........."
        at = static_cast<const char*>(std::memchr(at, '2', static_cast<std::size_t>(end - at)));
        if (at == nullptr) {
            break;
        }
        const std::string text = number_at(at, end);
        const char* const after = at + text.size();
        const bool alone = at != begin && at[-1] == '\0' && after != end && *after == '\0';
        at = after;
        if (alone && is_stamp(text)) {
            if (text == own_stamp) {
                return "";
            }
            stamp = stamp.empty() ? text : stamp;
        }
    }
    return stamp.empty() ? "" : "build time " + stamp;
}

Status verify_library_builds(const std::string& build_id) {
    if (build_id.size() < 2 || !is_build(build_id.substr(1))) {
        return {}; // a library that does not say of which build it is cannot be held against another
    }
    Names names;
    dl_iterate_phdr(collect_name, &names);
    if (!names.complete) {
        throw std::bad_alloc();
    }
    for (const std::string& path : names.paths) {
        auto file = MappedFile::open(path);
        if (!file) {
            continue; // loaded from inside an archive, or replaced since
        }
        std::string foreign = foreign_build(file->bytes(), build_id);
        if (!foreign.empty()) {
            return Fault{
                ExitCode::kLibraryLoad,
                path,
                "the QNN libraries are not of one build",
                std::move(foreign),
                build_id + ", as the backend says",
                "push the libraries of one QAIRT release into one folder and name it in LD_LIBRARY_PATH",
            };
        }
    }
    return {};
}

} // namespace snapgate
