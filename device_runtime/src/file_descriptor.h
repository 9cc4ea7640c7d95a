// Owns one file descriptor.
#pragma once

#include <unistd.h>

namespace snapgate {

class FileDescriptor {
  public:
    FileDescriptor() = default;

    explicit FileDescriptor(int fd) noexcept : fd_(fd) {}

    FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}

    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = other.release();
        }
        return *this;
    }

    ~FileDescriptor() { reset(); }

    int get() const noexcept { return fd_; }

    explicit operator bool() const noexcept { return fd_ >= 0; }

  private:
    int release() noexcept {
        const int fd = fd_;
        fd_ = -1;
        return fd;
    }

    void reset() noexcept {
        if (fd_ >= 0) {
            ::close(fd_);
            fd_ = -1;
        }
    }

    int fd_ = -1;
};

} // namespace snapgate
