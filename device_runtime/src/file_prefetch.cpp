#include "file_prefetch.h"

#include "file_descriptor.h"
#include "log.h"
#include "signals.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>

namespace snapgate {

FilePrefetch::FilePrefetch(std::vector<std::string> paths) {
    try {
        const SignalsBlocked blocked; // inherited by the thread: signals are for the one that works
        thread_ = std::thread([this, paths = std::move(paths)] { run(paths); });
    } catch (const std::system_error& error) {
        log_line("note", std::string("files are read without a thread that goes before: ") + error.what());
    }
}

FilePrefetch::~FilePrefetch() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) {
        thread_.join();
    }
}

void FilePrefetch::run(const std::vector<std::string>& paths) const noexcept {
    constexpr off_t kPart = off_t{8} << 20U; // a call may wait for the storage's queue: how long a stop takes
    for (const std::string& path : paths) {
        const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat info{};
        if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        for (off_t at = 0; at < info.st_size && !stop_.load(std::memory_order_relaxed); at += kPart) {
            if (posix_fadvise(file.get(), at, kPart, POSIX_FADV_WILLNEED) != 0) {
                break;
            }
        }
    }
}

} // namespace snapgate
