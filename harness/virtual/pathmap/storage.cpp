#include "storage.h"

#include "layout.h"

#include <filesystem>
#include <system_error>

namespace pathmap {
namespace {

constexpr std::uint64_t kPage = 4096;

} // namespace

bool Storage::holds(const std::string& host) const { return is_limited() && is_within(host, folder_); }

bool Storage::take(std::uint64_t size) {
    if (at_most_ + size > limit_)
        at_most_ = count();
    if (at_most_ + size > limit_)
        return false;
    at_most_ += size;
    return true;
}

std::uint64_t Storage::count() const {
    namespace fs = std::filesystem;
    std::uint64_t total = 0;
    std::error_code error;
    fs::recursive_directory_iterator entry(folder_, fs::directory_options::skip_permission_denied, error);
    for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
        std::error_code ignored;
        if (entry->symlink_status(ignored).type() == fs::file_type::regular) {
            const std::uintmax_t size = entry->file_size(ignored);
            if (!ignored)
                total += (size + kPage - 1) / kPage * kPage;
        }
    }
    return total;
}

} // namespace pathmap
