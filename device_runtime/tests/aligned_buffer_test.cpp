#include "aligned_buffer.h"
#include "heap_counter.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace snapgate;

TEST_CASE("buffers are aligned to 128 bytes, zeroed, and padded to a multiple of 128") {
    for (const std::uint64_t n_bytes : {1U, 127U, 128U, 129U, 4097U}) {
        const auto buffer = AlignedBuffer::allocate(n_bytes, "test");
        REQUIRE(buffer);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer->data()) % 128 == 0);
        CHECK(buffer->size() == n_bytes);
        for (std::uint64_t i = 0; i < round_up_to_alignment(n_bytes); ++i) { // the sanitizer watches the padding
            CHECK(buffer->data()[i] == std::byte{0});
        }
    }
    CHECK(round_up_to_alignment(0) == 0);
    CHECK(round_up_to_alignment(129) == 256);
}

TEST_CASE("an impossible size is a fault that names its purpose") {
    const auto buffer = AlignedBuffer::allocate(std::numeric_limits<std::uint64_t>::max(), "KV pool");
    REQUIRE_FALSE(buffer);
    CHECK(buffer.fault().code == ExitCode::kOutOfMemory);
    CHECK(buffer.fault().where == "KV pool");
}

TEST_CASE("the heap counter sees operator new, its array form and aligned buffers") {
    const std::uint64_t before = heap_allocation_count();
    auto one = std::make_unique<int>(1);
    auto many = std::make_unique<char[]>(100);
    const auto buffer = AlignedBuffer::allocate(10, "test");
    CHECK(heap_allocation_count() - before >= 3);
    const std::uint64_t quiet = heap_allocation_count();
    *one += 1;
    CHECK(heap_allocation_count() == quiet);
}
