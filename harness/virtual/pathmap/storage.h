// A folder that may hold only so many bytes, as a file system of that size would.
#pragma once

#include <cstdint>
#include <string>

namespace pathmap {

class Storage {
  public:
    // `limit` in bytes; 0: no limit.
    Storage(std::string folder, std::uint64_t limit) : folder_(std::move(folder)), limit_(limit) {}

    bool is_limited() const { return limit_ > 0; }

    // Whether the host's path is in the folder.
    bool holds(const std::string& host) const;

    // Whether `size` more bytes fit. Counts them as used if so.
    bool take(std::uint64_t size);

    std::uint64_t limit() const { return limit_; }

    // What the files there occupy now, in bytes.
    std::uint64_t count() const;

  private:
    std::string folder_;
    std::uint64_t limit_;
    std::uint64_t at_most_ = 0; // never less than what is used, while it is below the limit
};

} // namespace pathmap
