// Names of QNN error numbers. The library has no text for several of them, so the table is ours.
#pragma once

#include "result.h"

#include <cstdint>
#include <string>

namespace snapgate::qnn {

// The low 16 bits of a return value are the error number.
constexpr std::uint64_t error_number(std::uint64_t code) noexcept { return code & 0xFFFF; }

// "GRAPH_ABORTED", or "UNKNOWN" for a number of no known meaning.
const char* error_name(std::uint64_t code) noexcept;

// A fault for a QNN call that returned `code`; 0: it claims success and has made nothing.
Fault call_fault(ExitCode exit_code, std::string where, const char* call, std::uint64_t code, const char* next_step);

} // namespace snapgate::qnn
