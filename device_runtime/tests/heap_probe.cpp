// Preloaded into the runner by a test: counts every malloc, calloc, realloc and aligned allocation of the process,
// those that the executable makes (its own operator new ends in malloc) apart from those of all libraries, QNN's among
// them. The two counters lie in the file that SNAPGATE_HEAP_PROBE names, so that they outlive the process however it
// ends.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

struct Counters {
    std::atomic<std::uint64_t> own;
    std::atomic<std::uint64_t> libraries;
};

Counters* counters = nullptr;
std::uintptr_t begin = 0;
std::uintptr_t end = 0;

int note_executable(dl_phdr_info* info, std::size_t, void*) {
    begin = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) & segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && info->dlpi_addr + segment.p_vaddr + segment.p_memsz > end) {
            end = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
        }
    }
    return 1; // the first entry is the executable
}

__attribute__((constructor)) void start() {
    const char* path = std::getenv("SNAPGATE_HEAP_PROBE");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Counters)) != 0) {
        return;
    }
    void* memory = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) {
        dl_iterate_phdr(note_executable, nullptr);
        counters = static_cast<Counters*>(memory);
    }
}

void count(const void* caller) {
    if (counters != nullptr) {
        const auto address = reinterpret_cast<std::uintptr_t>(caller);
        auto& counter = begin <= address && address < end ? counters->own : counters->libraries;
        counter.fetch_add(1, std::memory_order_relaxed);
    }
}

} // namespace

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

extern "C" {

void* malloc(std::size_t size) {
    count(CALLER);
    return __libc_malloc(size);
}

void* calloc(std::size_t n, std::size_t size) {
    count(CALLER);
    return __libc_calloc(n, size);
}

void* realloc(void* memory, std::size_t size) {
    count(CALLER);
    return __libc_realloc(memory, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
    count(CALLER);
    return __libc_memalign(alignment, size);
}

void* memalign(std::size_t alignment, std::size_t size) {
    count(CALLER);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
    count(CALLER);
    *memory = __libc_memalign(alignment, size);
    return *memory == nullptr ? 12 : 0; // ENOMEM
}
}
