#include "mapped_file.h"

#include "file_descriptor.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace snapgate {
namespace {

Fault system_fault(const std::string& path, const char* what) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    return Fault{
        missing ? ExitCode::kFileMissing : ExitCode::kIoFailed,
        path,
        what,
        std::strerror(error),
        "a readable file",
        missing ? "push the artifact again" : "check the storage and permissions of the device",
    };
}

} // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
    // Not to wait for the other end of a pipe; a regular file is read the same with O_NONBLOCK as without.
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) {
        return system_fault(path, "the file cannot be opened");
    }
    struct stat info{};
    if (fstat(file.get(), &info) != 0) {
        return system_fault(path, "the file cannot be examined");
    }
    if (!S_ISREG(info.st_mode) || info.st_size <= 0) {
        return Fault{
            ExitCode::kFileMissing,    path,
            "the file has no content", S_ISREG(info.st_mode) ? "0 bytes" : "not a regular file",
            "a regular file",          "push the artifact again",
        };
    }
    const auto size = static_cast<std::size_t>(info.st_size);
    void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file.get(), 0);
    if (memory == MAP_FAILED) {
        return system_fault(path, "the file cannot be mapped");
    }
    return MappedFile(static_cast<const std::byte*>(memory), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        munmap(const_cast<std::byte*>(data_), size_);
    }
}

} // namespace snapgate
