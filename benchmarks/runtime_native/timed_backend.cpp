// A QNN backend around another one: every graphExecute is stamped on entry and on return. The runner and
// onnxruntime-qnn load it alike, so what each does between two executions is measured at the same two places.
//
// TIMED_QNN_REAL: the library that works. TIMED_QNN_OUT: where stamps go when the library is closed. TIMED_QNN_IDLE=1:
// executions return at once, and what is left is the caller's own time. TIMED_QNN_STOP_AT=N: at execution N the process
// stops itself (SIGSTOP), so that its memory can be looked at.
#include "qnn_abi.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>

namespace {

namespace abi = snapgate::qnn::abi;

struct Stamp {
    std::int64_t wall_in, wall_out; // ns
    std::int64_t cpu_in, cpu_out;   // of the calling thread, ns
    std::uint64_t graph;
    std::uint64_t thread;
};

constexpr std::size_t kMaxStamps = 1U << 16;
constexpr std::size_t kSlots = 80; // more than any known version has, less than what follows the table in the library

std::array<Stamp, kMaxStamps> stamps;
std::size_t n_stamps = 0;
bool idle = false;
std::size_t stop_at = 0;
decltype(abi::CoreTable::graph_execute) real_execute = nullptr;

std::int64_t now(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

abi::ErrorCode timed_execute(abi::Handle graph, const abi::Tensor* inputs, std::uint32_t n_inputs, abi::Tensor* outputs,
                             std::uint32_t n_outputs, abi::Handle profile, abi::Handle signal) {
    Stamp stamp{};
    stamp.cpu_in = now(CLOCK_THREAD_CPUTIME_ID);
    stamp.wall_in = now(CLOCK_MONOTONIC);
    stamp.graph = reinterpret_cast<std::uint64_t>(graph);
    stamp.thread = reinterpret_cast<std::uint64_t>(&errno);
    if (stop_at != 0 && n_stamps == stop_at) {
        std::raise(SIGSTOP);
    }
    const abi::ErrorCode code = idle ? 0 : real_execute(graph, inputs, n_inputs, outputs, n_outputs, profile, signal);
    stamp.wall_out = now(CLOCK_MONOTONIC);
    stamp.cpu_out = now(CLOCK_THREAD_CPUTIME_ID);
    if (n_stamps < kMaxStamps) {
        stamps[n_stamps++] = stamp;
    }
    return code;
}

struct Writer {
    ~Writer() {
        const char* path = std::getenv("TIMED_QNN_OUT");
        std::FILE* file = path == nullptr || n_stamps == 0 ? nullptr : std::fopen(path, "wb");
        if (file != nullptr) {
            std::fwrite(stamps.data(), sizeof(Stamp), n_stamps, file);
            std::fclose(file);
        }
    }
} writer;

struct WholeProvider {
    alignas(abi::Provider) std::byte bytes[offsetof(abi::Provider, table) + kSlots * sizeof(void*)];
};

} // namespace

extern "C" __attribute__((visibility("default"))) abi::ErrorCode
QnnInterface_getProviders(const abi::Provider*** providers, std::uint32_t* n_providers) {
    static WholeProvider copy;
    static const abi::Provider* list[1];
    const char* path = std::getenv("TIMED_QNN_REAL");
    void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void* symbol = library == nullptr ? nullptr : dlsym(library, abi::kGetProvidersSymbol);
    if (symbol == nullptr) {
        std::fprintf(stderr, "timed backend: TIMED_QNN_REAL: %s\n", dlerror());
        return 1;
    }
    const abi::Provider** real = nullptr;
    std::uint32_t n_real = 0;
    const abi::ErrorCode code = reinterpret_cast<abi::GetProviders>(symbol)(&real, &n_real);
    if (code != 0 || n_real != 1) {
        return code == 0 ? 1 : code;
    }
    idle = std::getenv("TIMED_QNN_IDLE") != nullptr;
    const char* stop = std::getenv("TIMED_QNN_STOP_AT");
    stop_at = stop == nullptr ? 0 : std::strtoul(stop, nullptr, 10);
    const bool stand_in = std::strncmp(real[0]->name, "STANDIN", 7) == 0; // whose table ends where ours does
    std::memcpy(copy.bytes, real[0], stand_in ? sizeof(abi::Provider) : sizeof copy.bytes);
    auto* provider = reinterpret_cast<abi::Provider*>(copy.bytes);
    real_execute = provider->table.graph_execute;
    provider->table.graph_execute = timed_execute;
    list[0] = provider;
    *providers = list;
    *n_providers = 1;
    return 0;
}
