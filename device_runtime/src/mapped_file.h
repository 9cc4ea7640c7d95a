// A file mapped for reading. Its content is what was hashed and what is used: nothing is read twice.
#pragma once

#include "result.h"
#include "span.h"

#include <cstddef>
#include <string>

namespace snapgate {

class MappedFile {
  public:
    // FILE_MISSING: no such regular file, or it is empty. IO_FAILED: anything else the system refuses.
    static Result<MappedFile> open(const std::string& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    ~MappedFile();

    Span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  private:
    MappedFile(const std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}

    const std::byte* data_;
    std::size_t size_;
};

} // namespace snapgate
