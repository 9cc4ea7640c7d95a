#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace snapgate {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::uint32_t rotate_right(std::uint32_t value, int count) noexcept {
    return (value >> count) | (value << (32 - count));
}

std::uint32_t read_big_endian(const std::byte* bytes) noexcept {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
        word = (word << 8) | std::to_integer<std::uint32_t>(bytes[i]);
    }
    return word;
}

} // namespace

void Sha256::compress(const std::byte* block) noexcept {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
        w[i] = read_big_endian(block + 4 * i);
    }
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const std::uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        const std::uint32_t choice = (e & f) ^ (~e & g);
        const std::uint32_t t1 = h + s1 + choice + kRoundConstants[i] + w[i];
        const std::uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + s0 + majority;
    }
    const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) {
        state_[i] += added[i];
    }
}

void Sha256::update(Span<const std::byte> bytes) noexcept {
    n_bytes_ += bytes.size();
    std::size_t used = 0;
    if (n_pending_ > 0) {
        used = std::min(bytes.size(), block_.size() - n_pending_);
        std::memcpy(block_.data() + n_pending_, bytes.data(), used);
        n_pending_ += used;
        if (n_pending_ < block_.size()) {
            return;
        }
        compress(block_.data());
        n_pending_ = 0;
    }
    for (; bytes.size() - used >= block_.size(); used += block_.size()) {
        compress(bytes.data() + used);
    }
    if (used < bytes.size()) {
        n_pending_ = bytes.size() - used;
        std::memcpy(block_.data(), bytes.data() + used, n_pending_);
    }
}

std::string Sha256::hex_digest() {
    const std::uint64_t n_bits = n_bytes_ * 8;
    std::array<std::byte, 72> padding{}; // 0x80, zeros up to 56 modulo 64, then the length in bits, big-endian
    padding[0] = std::byte{0x80};
    const std::size_t n_zeros = (n_pending_ < 56 ? 55 : 119) - n_pending_;
    for (std::size_t i = 0; i < 8; ++i) {
        padding[1 + n_zeros + i] = static_cast<std::byte>(n_bits >> (56 - 8 * i));
    }
    update({padding.data(), 1 + n_zeros + 8});

    constexpr const char* kDigits = "0123456789abcdef";
    std::string hex;
    hex.reserve(64);
    for (const std::uint32_t word : state_) {
        for (int shift = 28; shift >= 0; shift -= 4) {
            hex.push_back(kDigits[(word >> shift) & 0xF]);
        }
    }
    return hex;
}

std::string sha256_hex(Span<const std::byte> bytes) {
    Sha256 hash;
    hash.update(bytes);
    return hash.hex_digest();
}

} // namespace snapgate
