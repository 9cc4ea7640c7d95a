#include "record_writer.h"

#include "log.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace snapgate {
namespace {

Fault io_fault(const std::string& path, const char* what) {
    return Fault{
        ExitCode::kIoFailed,
        path,
        what,
        std::strerror(errno),
        "a writable folder with space left",
        "free space on the device, or name another folder with --out",
    };
}

} // namespace

bool write_fully(int fd, const void* bytes, std::size_t size) noexcept {
    const auto* next = static_cast<const char*>(bytes);
    while (size > 0) {
        const ssize_t n = ::write(fd, next, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        next += n;
        size -= static_cast<std::size_t>(n);
    }
    return true;
}

Status RecordWriter::open_folder(const std::string& folder) {
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
        return io_fault(folder, "the output folder cannot be created");
    }
    path_ = folder + "/records.jsonl";
    file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file_) {
        return io_fault(path_, "the record file cannot be created");
    }
    return {};
}

Status RecordWriter::write_line(std::string line) {
    line.push_back('\n');
    ++n_written_;
    if (stdout_ && !write_fully(stdout_.get(), line.data(), line.size())) {
        log_line("note", "stdout is closed; records go on to the file");
        stdout_ = FileDescriptor();
    }
    if (file_ && !write_fully(file_.get(), line.data(), line.size())) {
        return io_fault(path_, "a record cannot be written");
    }
    return {};
}

} // namespace snapgate
