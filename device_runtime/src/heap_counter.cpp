#include "heap_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> n_allocations{0};

void* allocate(std::size_t size, std::size_t alignment) noexcept {
    n_allocations.fetch_add(1, std::memory_order_relaxed);
    if (size == 0) {
        size = 1;
    }
    if (alignment <= alignof(std::max_align_t)) {
        return std::malloc(size);
    }
    void* memory = nullptr;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    void* memory = allocate(size, alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

namespace snapgate {

std::uint64_t heap_allocation_count() noexcept { return n_allocations.load(std::memory_order_relaxed); }

void count_heap_allocation() noexcept { n_allocations.fetch_add(1, std::memory_order_relaxed); }

} // namespace snapgate

// Every replaceable form is defined, so that no allocation goes uncounted and none is freed by a foreign delete.
void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }

void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }

void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }

void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }

void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}

void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}

void operator delete(void* memory) noexcept { std::free(memory); }

void operator delete[](void* memory) noexcept { std::free(memory); }

void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }

void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
