// The two QNN libraries, opened and checked: a provider whose API generation qnn_abi.h describes, every slot present.
#pragma once

#include "qnn_abi.h"
#include "result.h"

#include <memory>
#include <string>

namespace snapgate::qnn {

std::string version_text(const abi::Version& version);

// Owns a dlopen handle.
class SharedLibrary {
  public:
    // LIBRARY_LOAD with the linker's own words.
    static Result<SharedLibrary> open(const std::string& path);

    // Null when the library has no such symbol.
    void* symbol(const char* name) const noexcept;

  private:
    struct Close {
        void operator()(void* handle) const noexcept;
    };

    explicit SharedLibrary(void* handle) noexcept : handle_(handle) {}

    std::unique_ptr<void, Close> handle_;
};

// libQnnHtp.so and its function table. API_UNSUPPORTED names a generation or slot that will not do.
class BackendLibrary {
  public:
    static Result<BackendLibrary> open(const std::string& path);

    const abi::CoreTable& table() const noexcept { return provider_->table; }

    std::string provider_name() const { return provider_->name == nullptr ? "" : provider_->name; }

    std::string core_version() const { return version_text(provider_->core); }

    std::string backend_version() const { return version_text(provider_->backend); }

    // The library's build id, empty where it gives none.
    std::string build_id() const;

  private:
    BackendLibrary(SharedLibrary library, const abi::Provider* provider) noexcept
        : library_(std::move(library)), provider_(provider) {}

    SharedLibrary library_;
    const abi::Provider* provider_; // inside the library
};

// libQnnSystem.so, which reads the metadata of context binaries.
class SystemLibrary {
  public:
    static Result<SystemLibrary> open(const std::string& path);

    const abi::SystemTable& table() const noexcept { return provider_->table; }

    std::string version() const { return version_text(provider_->version); }

  private:
    SystemLibrary(SharedLibrary library, const abi::SystemProvider* provider) noexcept
        : library_(std::move(library)), provider_(provider) {}

    SharedLibrary library_;
    const abi::SystemProvider* provider_;
};

} // namespace snapgate::qnn
