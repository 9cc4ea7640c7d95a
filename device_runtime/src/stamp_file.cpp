#include "stamp_file.h"

#include "file_descriptor.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>

namespace snapgate {

void StampFile::Unmap::operator()(Header* header) const noexcept { munmap(header, n_bytes); }

Result<StampFile> StampFile::create(const std::string& folder, std::uint64_t capacity) {
    const std::string path = folder + "/stamps.bin";
    const auto fault = [&path](int error) {
        return Fault{
            ExitCode::kIoFailed,
            path,
            "the stamp file cannot be made",
            std::strerror(error),
            "a writable folder with space left",
            "free space on the device",
        };
    };
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) {
        return fault(errno);
    }
    const std::size_t n_bytes = sizeof(Header) + capacity * sizeof(Stamp);
    // Space for every page is taken now: a full disk is an error here and not a SIGBUS between two tokens.
    int error = EINTR; // some file systems give up for any signal
    while (error == EINTR) {
        error = posix_fallocate(file.get(), 0, static_cast<off_t>(n_bytes));
    }
    if (error != 0) {
        return fault(error);
    }
    void* memory = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (memory == MAP_FAILED) {
        return fault(errno);
    }
    std::memset(memory, 0, n_bytes); // and every page is writable without a fault
    StampFile stamps;
    stamps.header_ = std::unique_ptr<Header, Unmap>(new (memory) Header{}, Unmap{n_bytes});
    stamps.stamps_ = reinterpret_cast<Stamp*>(stamps.header_.get() + 1);
    stamps.capacity_ = capacity;
    Header& header = *stamps.header_;
    header.version = 1;
    header.stamp_bytes = sizeof(Stamp);
    header.capacity = capacity;
    std::memcpy(header.magic, "SNAPSTMP", sizeof header.magic); // last: a file with the magic is whole
    return stamps;
}

void StampFile::begin(std::uint32_t prompt_index, std::uint32_t repetition, bool warmup) noexcept {
    if (header_ == nullptr) {
        return;
    }
    clear();
    header_->prompt_index = prompt_index;
    header_->repetition = repetition;
    header_->warmup = warmup ? 1 : 0;
}

void StampFile::clear() noexcept {
    count_ = 0;
    if (header_ != nullptr) {
        header_->n_stamps.store(0, std::memory_order_release);
    }
}

} // namespace snapgate
