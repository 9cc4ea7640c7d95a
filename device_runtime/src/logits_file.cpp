#include "logits_file.h"

#include "record_writer.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>

namespace snapgate {
namespace {

constexpr const char* kFileName = "logits.bin";

Fault io_fault(const std::string& path, const char* what) {
    return Fault{
        ExitCode::kIoFailed,
        path,
        what,
        std::strerror(errno),
        "a writable folder with space left",
        "free space on the device, or ask for fewer logits",
    };
}

} // namespace

Result<LogitsFile> LogitsFile::create(const std::string& folder, std::uint64_t max_rows, std::uint64_t row_bytes) {
    const std::string path = folder + "/" + kFileName;
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) {
        return io_fault(path, "the logits file cannot be created");
    }
    auto rows = AlignedBuffer::allocate(max_rows * row_bytes, "collected logits");
    if (!rows) {
        return std::move(rows).fault();
    }
    return LogitsFile(std::move(file), path, *std::move(rows), row_bytes);
}

void LogitsFile::add(const LogitsRow& row) noexcept {
    std::memcpy(rows_.data() + n_rows_ * row_bytes_, row.elements, row_bytes_);
    ++n_rows_;
}

Result<LogitsFileRecord> LogitsFile::write(const Encoding& encoding) {
    const std::uint64_t n_bytes = n_rows_ * row_bytes_;
    if (!write_fully(file_.get(), rows_.data(), n_bytes)) {
        return io_fault(path_, "logits cannot be written");
    }
    LogitsFileRecord record;
    record.file = kFileName;
    record.offset_bytes = file_bytes_;
    record.n_rows = n_rows_;
    record.n_columns = row_bytes_ / encoding.element_bytes();
    record.dtype = name_of(encoding.dtype);
    if (is_fixed(encoding.dtype)) {
        record.scale = encoding.scale;
        record.zero_point = encoding.zero_point;
    }
    file_bytes_ += n_bytes;
    return record;
}

} // namespace snapgate
