// A QNN backend library that composes every graph of a process in one context: onnxruntime-qnn loads it in place of
// libQnnHtp.so, asks for a context per graph and gets the first one each time. The binary it takes out at the end then
// holds all graphs, each with weights of its own. All work is done by the library that SNAPGATE_QNN_BACKEND names; no
// graph, operator or option is changed on the way. Used by one process, from one thread.

#include "../src/qnn_abi.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace snapgate::qnn::abi;

using ContextCreate = ErrorCode (*)(Handle backend, Handle device, const Config** config, Handle* context);

constexpr std::size_t kContextCreateSlot = 9;
constexpr std::size_t kContextFreeSlot = 14;
constexpr std::size_t kMaxSlots = 256; // the newest table known (core API 2.40) has 75
constexpr std::size_t kTableOffset = offsetof(Provider, table);
constexpr ErrorCode kCannotLoad = 1; // any number but 0: onnxruntime-qnn reports it as it is

ContextCreate g_create = nullptr;
Handle g_context = nullptr;
alignas(Provider) unsigned char g_provider[kTableOffset + kMaxSlots * sizeof(void*)];

ErrorCode create_once(Handle backend, Handle device, const Config** config, Handle* context) {
    if (context == nullptr) {
        return kCannotLoad;
    }
    if (g_context == nullptr) {
        if (const ErrorCode code = g_create(backend, device, config, &g_context); code != 0) {
            g_context = nullptr;
            return code;
        }
    }
    *context = g_context;
    return 0;
}

// The one context lives as long as the process: the other sessions hold it too.
ErrorCode keep(Handle /*context*/, Handle /*profile*/) { return 0; }

// Copies what is readable from `from` on, at most `n` bytes: the table is longer than any header says, and where it
// ends is not told. What is read beyond it is never called.
std::size_t copy_readable(const void* from, unsigned char* to, std::size_t n) {
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory < 0) {
        return 0;
    }
    const ssize_t n_read = pread(memory, to, n, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(from)));
    close(memory);
    return n_read < 0 ? 0 : static_cast<std::size_t>(n_read);
}

void put(std::size_t slot, const void* function) {
    std::memcpy(g_provider + kTableOffset + slot * sizeof(void*), &function, sizeof function);
}

[[nodiscard]] bool load() {
    const char* const path = std::getenv("SNAPGATE_QNN_BACKEND");
    void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "one_context: SNAPGATE_QNN_BACKEND does not name a QNN backend: %s\n",
                     path == nullptr ? "it is not set" : dlerror());
        return false;
    }
    const auto get = reinterpret_cast<GetProviders>(dlsym(library, kGetProvidersSymbol));
    const Provider** providers = nullptr;
    std::uint32_t n_providers = 0;
    if (get == nullptr || get(&providers, &n_providers) != 0 || n_providers == 0) {
        std::fprintf(stderr, "one_context: %s offers no QNN interface\n", path);
        return false;
    }
    if (copy_readable(providers[0], g_provider, sizeof g_provider) < sizeof(Provider)) {
        std::fprintf(stderr, "one_context: the QNN interface of %s cannot be read\n", path);
        return false;
    }
    std::memcpy(&g_create, g_provider + kTableOffset + kContextCreateSlot * sizeof(void*), sizeof g_create);
    put(kContextCreateSlot, reinterpret_cast<const void*>(&create_once));
    put(kContextFreeSlot, reinterpret_cast<const void*>(&keep));
    return g_create != nullptr;
}

} // namespace

extern "C" __attribute__((visibility("default"))) ErrorCode QnnInterface_getProviders(const Provider*** providers,
                                                                                      std::uint32_t* n_providers) {
    static const bool loaded = load();
    static const Provider* one = reinterpret_cast<const Provider*>(g_provider);
    if (!loaded || providers == nullptr || n_providers == nullptr) {
        return kCannotLoad;
    }
    *providers = &one;
    *n_providers = 1;
    return 0;
}
