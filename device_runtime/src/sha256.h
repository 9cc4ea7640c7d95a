// SHA-256 (FIPS 180-4).
#pragma once

#include "span.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace snapgate {

class Sha256 {
  public:
    void update(Span<const std::byte> bytes) noexcept;

    // The digest of everything given so far, as 64 lower-case hex digits. Call once, last.
    std::string hex_digest();

  private:
    void compress(const std::byte* block) noexcept;

    std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{}; // bytes that do not fill a block yet
    std::size_t n_pending_ = 0;
    std::uint64_t n_bytes_ = 0;
};

std::string sha256_hex(Span<const std::byte> bytes);

} // namespace snapgate
