// logits.bin: raw logits rows in the graphs' own dtype. Rows are collected in memory while the clock runs and written
// between generations.
#pragma once

#include "aligned_buffer.h"
#include "file_descriptor.h"
#include "logits.h"
#include "records.h"
#include "result.h"

#include <cstdint>
#include <string>

namespace snapgate {

class LogitsFile {
  public:
    // Creates `folder`/logits.bin, replacing an older one, and takes room for the largest generation once.
    static Result<LogitsFile> create(const std::string& folder, std::uint64_t max_rows, std::uint64_t row_bytes);

    // Forgets the rows collected so far.
    void clear() noexcept { n_rows_ = 0; }

    // Copies one row; the caller keeps to max_rows.
    void add(const LogitsRow& row) noexcept;

    // Appends the collected rows to the file and says where they are. IO_FAILED when the file cannot take them.
    Result<LogitsFileRecord> write(const Encoding& encoding);

  private:
    LogitsFile(FileDescriptor file, std::string path, AlignedBuffer rows, std::uint64_t row_bytes)
        : file_(std::move(file)), path_(std::move(path)), rows_(std::move(rows)), row_bytes_(row_bytes) {}

    FileDescriptor file_;
    std::string path_;
    AlignedBuffer rows_;
    std::uint64_t row_bytes_;
    std::uint64_t n_rows_ = 0;
    std::uint64_t file_bytes_ = 0;
};

} // namespace snapgate
