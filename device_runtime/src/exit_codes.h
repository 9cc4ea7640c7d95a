// The exit codes of the process. They are a contract: harness/record/schema/exit_codes.json lists the same ones, and
// a test compares the two.
#pragma once

#include <array>

namespace snapgate {

enum class ExitCode : int {
    kOk = 0,
    kUsage = 2,
    kJobInvalid = 10,
    kFileMissing = 11,
    kHashMismatch = 12,
    kArchMismatch = 13,
    kTensorMismatch = 14,
    kPromptTooLong = 15,
    kLibraryLoad = 20,
    kApiUnsupported = 21,
    kBackendFailed = 22,
    kDeviceFailed = 23,
    kContextFailed = 24,
    kGraphFailed = 25,
    kExecuteFailed = 26,
    kOutOfMemory = 30,
    kIoFailed = 31,
    kTerminated = 40,
    kHung = 41,
    kInternal = 70,
};

struct NamedExitCode {
    ExitCode code;
    const char* name;
};

constexpr std::array<NamedExitCode, 20> kExitCodes = {{
    {ExitCode::kOk, "OK"},
    {ExitCode::kUsage, "USAGE"},
    {ExitCode::kJobInvalid, "JOB_INVALID"},
    {ExitCode::kFileMissing, "FILE_MISSING"},
    {ExitCode::kHashMismatch, "HASH_MISMATCH"},
    {ExitCode::kArchMismatch, "ARCH_MISMATCH"},
    {ExitCode::kTensorMismatch, "TENSOR_MISMATCH"},
    {ExitCode::kPromptTooLong, "PROMPT_TOO_LONG"},
    {ExitCode::kLibraryLoad, "LIBRARY_LOAD"},
    {ExitCode::kApiUnsupported, "API_UNSUPPORTED"},
    {ExitCode::kBackendFailed, "BACKEND_FAILED"},
    {ExitCode::kDeviceFailed, "DEVICE_FAILED"},
    {ExitCode::kContextFailed, "CONTEXT_FAILED"},
    {ExitCode::kGraphFailed, "GRAPH_FAILED"},
    {ExitCode::kExecuteFailed, "EXECUTE_FAILED"},
    {ExitCode::kOutOfMemory, "OUT_OF_MEMORY"},
    {ExitCode::kIoFailed, "IO_FAILED"},
    {ExitCode::kTerminated, "TERMINATED"},
    {ExitCode::kHung, "HUNG"},
    {ExitCode::kInternal, "INTERNAL"},
}};

constexpr const char* name_of(ExitCode code) noexcept {
    for (const NamedExitCode& entry : kExitCodes) {
        if (entry.code == code) {
            return entry.name;
        }
    }
    return "INTERNAL";
}

} // namespace snapgate
