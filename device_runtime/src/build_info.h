// Which build this is.
#pragma once

#include <string>

namespace snapgate {

constexpr const char* runner_version() noexcept { return SNAPGATE_VERSION; }

constexpr const char* build_type() noexcept { return SNAPGATE_BUILD_TYPE; }

constexpr const char* compiler() noexcept {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

// Android's names for the ABI, on Linux too.
constexpr const char* abi_name() noexcept {
#if defined(__aarch64__)
    return "arm64-v8a";
#elif defined(__x86_64__)
    return "x86_64";
#else
#error "an ABI without a name"
#endif
}

} // namespace snapgate
