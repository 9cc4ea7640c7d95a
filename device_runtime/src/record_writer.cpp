#include "record_writer.h"

#include "clock.h"
#include "log.h"
#include "progress.h"
#include "signals.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
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
    file_bytes_ = 0;
    return {};
}

// Waits in poll, the one call that a signal always ends, and never hands over more than a pipe takes at once.
void RecordWriter::write_to_watcher(const std::string& line) noexcept {
    for (std::size_t done = 0; stdout_ && done < line.size();) {
        pollfd watched{stdout_.get(), POLLOUT, 0};
        const int ready = stop_requested() ? poll(&watched, 1, 0) : poll(&watched, 1, 1000);
        if (ready == 0 && stop_requested()) {
            log_line("note", "stdout is stalled; records go on to the file");
            stdout_ = FileDescriptor();
        }
        if (ready == 0 || (ready < 0 && errno == EINTR)) {
            continue;
        }
        const std::size_t n = std::min<std::size_t>(line.size() - done, PIPE_BUF);
        if (!write_fully(stdout_.get(), line.data() + done, n)) {
            log_line("note", "stdout is closed; records go on to the file");
            stdout_ = FileDescriptor();
        }
        done += n;
    }
}

void RecordWriter::write_heartbeat(const FixedText& line) noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    pollfd watched{stdout_.get(), POLLOUT, 0};
    if (lock && stdout_ && poll(&watched, 1, 0) == 1 && (watched.revents & POLLOUT) != 0) {
        write_fully(stdout_.get(), line.data(), line.size());
    }
}

void RecordWriter::write_last_words(const FixedText& error, ExitCode code) noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
        return; // a record is half written: another line would only damage it
    }
    const ClockReading clock = read_clocks();
    FixedText end;
    end.put(R"({"type": "end", "exit_code": )").put(static_cast<unsigned long>(code));
    end.put(R"(, "n_records": )").put(static_cast<unsigned long>(n_written_ + 1));
    end.put(R"(, "clock": {"monotonic_ns": )").put(static_cast<unsigned long>(clock.monotonic_ns));
    end.put(R"(, "boottime_ns": )").put(static_cast<unsigned long>(clock.boottime_ns));
    end.put(R"(, "realtime_ns": )").put(static_cast<unsigned long>(clock.realtime_ns)).put("}}\n");
    pollfd watched{stdout_.get(), POLLOUT, 0};
    const bool is_read = stdout_ && poll(&watched, 1, 0) == 1 && (watched.revents & POLLOUT) != 0;
    for (const FixedText* line : {&error, static_cast<const FixedText*>(&end)}) {
        if (file_) {
            write_fully(file_.get(), line->data(), line->size());
        }
        if (is_read) {
            write_fully(stdout_.get(), line->data(), line->size());
        }
    }
}

Status RecordWriter::write_line(std::string line) {
    const std::lock_guard lock(mutex_);
    const Unwatched waiting_for_a_reader;
    line.push_back('\n');
    ++n_written_;
    write_to_watcher(line);
    if (!file_) {
        return {};
    }
    if (!write_fully(file_.get(), line.data(), line.size())) {
        Fault fault = io_fault(path_, "a record cannot be written");
        // What was written of the line goes away, so that the next one, which may still fit, does not end up in it.
        const auto whole = static_cast<off_t>(file_bytes_);
        if (ftruncate(file_.get(), whole) != 0 || lseek(file_.get(), whole, SEEK_SET) != whole) {
            file_ = FileDescriptor();
        }
        return fault;
    }
    file_bytes_ += line.size();
    return {};
}

} // namespace snapgate
