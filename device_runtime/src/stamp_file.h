// stamps.bin: the stamps of the generation under way, in memory that outlives the process. The file is mapped shared:
// what was stored in it is in the kernel's hands, so that a process killed between two tokens loses none. A generation
// that ends well is a record, and its stamps are dropped.
//
// Layout (little-endian; harness/record/stamps.py reads it): a header of 64 bytes, then `n_stamps` of 24 bytes.
#pragma once

#include "result.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace snapgate {

enum class StampKind : std::uint32_t {
    kStart = 1,    // the generation
    kChunk = 2,    // a prefill step begins; a: its tokens, b: those of its graph
    kChunkEnd = 3, // and ends
    kRelayout = 4, // ns: what re-layouts have taken so far, not a moment
    kToken = 5,    // a: the id appended, b: the greedy one
};

class StampFile {
  public:
    // Without a file: stamps go nowhere.
    StampFile() = default;

    // Creates `folder`/stamps.bin with room for `capacity` stamps, every page of it present. IO_FAILED names the path.
    static Result<StampFile> create(const std::string& folder, std::uint64_t capacity);

    // Forgets the stamps of the generation before.
    void begin(std::uint32_t prompt_index, std::uint32_t repetition, bool warmup) noexcept;

    // Two stores and a release; a stamp past the capacity is not kept.
    void add(StampKind kind, std::int64_t ns, std::int32_t a = 0, std::int32_t b = 0) noexcept {
        if (count_ < capacity_) {
            stamps_[count_] = {static_cast<std::uint32_t>(kind), a, b, 0, ns};
            ++count_;
            header_->n_stamps.store(count_, std::memory_order_release);
        }
    }

    // The generation is a record now.
    void clear() noexcept;

  private:
    struct Header {
        char magic[8]; // "SNAPSTMP"
        std::uint32_t version;
        std::uint32_t stamp_bytes;
        std::uint64_t capacity;
        std::atomic<std::uint64_t> n_stamps;
        std::uint32_t prompt_index;
        std::uint32_t repetition;
        std::uint32_t warmup;
        std::uint32_t unused[5];
    };

    struct Stamp {
        std::uint32_t kind;
        std::int32_t a;
        std::int32_t b;
        std::uint32_t unused;
        std::int64_t ns;
    };

    static_assert(sizeof(Header) == 64 && sizeof(Stamp) == 24 && std::atomic<std::uint64_t>::is_always_lock_free);

    struct Unmap {
        std::size_t n_bytes;

        void operator()(Header* header) const noexcept;
    };

    std::unique_ptr<Header, Unmap> header_{nullptr, Unmap{0}};
    Stamp* stamps_ = nullptr; // behind the header
    std::uint64_t capacity_ = 0;
    std::uint64_t count_ = 0;
};

} // namespace snapgate
