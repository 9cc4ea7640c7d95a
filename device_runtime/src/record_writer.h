// Writes records as JSON Lines: to records.jsonl, which is the truth, and to stdout for whoever watches. One thread
// writes records; a second one may write heartbeats and the last words of a hung process.
#pragma once

#include "file_descriptor.h"
#include "fixed_text.h"
#include "records.h"
#include "result.h"

#include <cstdint>
#include <mutex>
#include <string>

namespace snapgate {

class RecordWriter {
  public:
    // `stdout_fd` gets a copy of every line. Without a folder (a probe) it is the only place.
    explicit RecordWriter(FileDescriptor stdout_fd) noexcept : stdout_(std::move(stdout_fd)) {}

    // Creates `folder` (one level) and `folder`/records.jsonl, replacing an older one. IO_FAILED names the path.
    Status open_folder(const std::string& folder);

    // Each line is handed to the system before the call returns. IO_FAILED when the file cannot take it, which then
    // ends with the line before. A closed stdout is no fault: the watcher is gone, the file goes on. So it does when a
    // stop is asked for while stdout takes nothing.
    template <typename Record>
    Status write(const Record& record) {
        return write_line(to_line(record));
    }

    std::uint64_t n_written() const noexcept { return n_written_; }

    // For the second thread. A heartbeat goes to stdout alone, and nowhere when a record is being written or when
    // stdout takes nothing.
    void write_heartbeat(const FixedText& line) noexcept;

    // For a process that ends in the middle of a call: `error`, a whole line, and the end record, without allocation.
    void write_last_words(const FixedText& error, ExitCode code) noexcept;

  private:
    Status write_line(std::string line);
    void write_to_watcher(const std::string& line) noexcept;

    std::mutex mutex_; // held while a record is written: never in the timed loop
    FileDescriptor stdout_;
    FileDescriptor file_;
    std::string path_;
    std::uint64_t file_bytes_ = 0; // of whole lines
    std::uint64_t n_written_ = 0;
};

// Writes all of `bytes`, going on after signals and short writes; false with errno set otherwise.
bool write_fully(int fd, const void* bytes, std::size_t size) noexcept;

} // namespace snapgate
