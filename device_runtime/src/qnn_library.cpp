#include "qnn_library.h"

#include "qnn_codes.h"

#include <array>
#include <dlfcn.h>

namespace snapgate::qnn {
namespace {

constexpr std::uint32_t kMaxProviders = 64;

struct Slot {
    const char* name;
    bool present;
};

Fault load_fault(const std::string& path, const char* what, std::string found, std::string expected) {
    return Fault{
        ExitCode::kLibraryLoad,
        path,
        what,
        std::move(found),
        std::move(expected),
        "push the libraries of one QAIRT release into one folder and name it in LD_LIBRARY_PATH",
    };
}

Fault unsupported(const std::string& path, const char* what, std::string found, std::string expected) {
    return Fault{
        ExitCode::kApiUnsupported,
        path,
        what,
        std::move(found),
        std::move(expected),
        "use the QNN libraries that go with the compiler of the artifact",
    };
}

template <typename Slots>
Status check_slots(const std::string& path, const Slots& slots) {
    for (const Slot& slot : slots) {
        if (!slot.present) {
            return unsupported(path, "the function table has a hole", slot.name, "a function");
        }
    }
    return {};
}

Status check_core_table(const std::string& path, const abi::CoreTable& table) {
    const std::array slots = {
        Slot{"backendCreate is null", table.backend_create != nullptr},
        Slot{"backendGetBuildId is null", table.backend_get_build_id != nullptr},
        Slot{"backendFree is null", table.backend_free != nullptr},
        Slot{"contextCreateFromBinary is null", table.context_create_from_binary != nullptr},
        Slot{"contextFree is null", table.context_free != nullptr},
        Slot{"graphRetrieve is null", table.graph_retrieve != nullptr},
        Slot{"graphExecute is null", table.graph_execute != nullptr},
        Slot{"logCreate is null", table.log_create != nullptr},
        Slot{"logFree is null", table.log_free != nullptr},
        Slot{"deviceGetInfrastructure is null", table.device_get_infrastructure != nullptr},
        Slot{"deviceCreate is null", table.device_create != nullptr},
        Slot{"deviceFree is null", table.device_free != nullptr},
    };
    return check_slots(path, slots);
}

Status check_system_table(const std::string& path, const abi::SystemTable& table) {
    const std::array slots = {
        Slot{"systemContextCreate is null", table.context_create != nullptr},
        Slot{"systemContextGetMetaData is null", table.get_metadata != nullptr},
        Slot{"systemContextFree is null", table.context_free != nullptr},
    };
    return check_slots(path, slots);
}

// Calls the library's entry point; the list belongs to the library.
template <typename GetProviders, typename Provider>
Status list_providers(const std::string& path, const SharedLibrary& library, const char* symbol,
                      const Provider**& providers, std::uint32_t& n_providers) {
    const auto get_providers = reinterpret_cast<GetProviders>(library.symbol(symbol));
    if (get_providers == nullptr) {
        return load_fault(path, "not a QNN library of the expected kind", std::string("no symbol ") + symbol, symbol);
    }
    const abi::ErrorCode code = get_providers(&providers, &n_providers);
    if (error_number(code) != 0) {
        return call_fault(ExitCode::kLibraryLoad, path, symbol, code, "check that the library is undamaged");
    }
    if (providers == nullptr || n_providers == 0 || n_providers > kMaxProviders) {
        return load_fault(path, "the library lists no usable providers", std::to_string(n_providers),
                          "1 to " + std::to_string(kMaxProviders));
    }
    return {};
}

} // namespace

std::string version_text(const abi::Version& version) {
    return std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch);
}

void SharedLibrary::Close::operator()(void* handle) const noexcept { dlclose(handle); }

Result<SharedLibrary> SharedLibrary::open(const std::string& path) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* reason = dlerror();
        return load_fault(path, "the library cannot be loaded", reason == nullptr ? "no reason given" : reason,
                          "a library for this ABI, with all it depends on");
    }
    return SharedLibrary(handle);
}

void* SharedLibrary::symbol(const char* name) const noexcept { return dlsym(handle_.get(), name); }

Result<BackendLibrary> BackendLibrary::open(const std::string& path) {
    auto library = SharedLibrary::open(path);
    if (!library) {
        return std::move(library).fault();
    }
    const abi::Provider** providers = nullptr;
    std::uint32_t n_providers = 0;
    SNAPGATE_TRY(list_providers<abi::GetProviders>(path, *library, abi::kGetProvidersSymbol, providers, n_providers));
    std::string found;
    for (std::uint32_t i = 0; i < n_providers; ++i) {
        const abi::Provider* provider = providers[i];
        if (provider == nullptr) {
            continue;
        }
        if (provider->backend_id == abi::kHtpBackendId && provider->core.major == abi::kCoreMajor &&
            provider->core.minor >= abi::kCoreMinorMin) {
            SNAPGATE_TRY(check_core_table(path, provider->table));
            return BackendLibrary(*std::move(library), provider);
        }
        found += (found.empty() ? "" : ", ") + std::string(provider->name == nullptr ? "?" : provider->name) +
                 " (backend " + std::to_string(provider->backend_id) + ") core API " + version_text(provider->core);
    }
    return unsupported(path, "no provider of a supported API generation", found,
                       "an HTP backend (6) with core API 2." + std::to_string(abi::kCoreMinorMin) + " or a later 2.x");
}

std::string BackendLibrary::build_id() const {
    const char* id = nullptr;
    const abi::ErrorCode code = table().backend_get_build_id(&id);
    return error_number(code) == 0 && id != nullptr ? id : "";
}

Result<SystemLibrary> SystemLibrary::open(const std::string& path) {
    auto library = SharedLibrary::open(path);
    if (!library) {
        return std::move(library).fault();
    }
    const abi::SystemProvider** providers = nullptr;
    std::uint32_t n_providers = 0;
    SNAPGATE_TRY(list_providers<abi::GetSystemProviders>(path, *library, abi::kGetSystemProvidersSymbol, providers,
                                                         n_providers));
    std::string found;
    for (std::uint32_t i = 0; i < n_providers; ++i) {
        const abi::SystemProvider* provider = providers[i];
        if (provider == nullptr) {
            continue;
        }
        if (provider->version.major == abi::kSystemMajor && provider->version.minor >= abi::kSystemMinorMin) {
            SNAPGATE_TRY(check_system_table(path, provider->table));
            return SystemLibrary(*std::move(library), provider);
        }
        found += (found.empty() ? "" : ", ") + std::string("System API ") + version_text(provider->version);
    }
    return unsupported(path, "no provider of a supported API generation", found,
                       "System API 1." + std::to_string(abi::kSystemMinorMin) + " or a later 1.x");
}

} // namespace snapgate::qnn
