// What the stand-in libraries do on request, by environment variable:
//   FAKE_QNN_FAIL=graphExecute:3:6031   the third such call returns 6031 without doing anything
//   FAKE_QNN_CRASH=graphExecute:2       the second such call dies of SIGSEGV
//   FAKE_QNN_DELAY=graphExecute:50      every such call takes 50 ms longer
//   FAKE_QNN_HANG=graphExecute:3        the third such call never returns
//   FAKE_QNN_NULL=logFree               that slot of the function table is null
//   FAKE_QNN_CORE=2.7.2, FAKE_QNN_SYSTEM=1.1.0, FAKE_QNN_BACKEND_ID=4   what the libraries claim to be
//   FAKE_QNN_NAN=1                      all logits are NaN (float16 graphs)
//   FAKE_QNN_TRACE=FILE                 one line per call is appended to FILE
//   FAKE_RPC_TAG=180                    rpcmem gives out addresses with this top byte (arm64 only)
// Several entries are separated by commas. A wrong call is answered by an error and a line "standin
// violation: ..." on stderr, which no test may see.
#pragma once

#include "qnn_abi.h"

#include <cstdint>
#include <optional>
#include <string>

namespace standin {

// To be called first in every entry point: traces, delays, crashes; a code when the call is to fail.
std::optional<snapgate::qnn::abi::ErrorCode> enter(const std::string& call, const std::string& detail = "");

snapgate::qnn::abi::ErrorCode violation(const std::string& text, snapgate::qnn::abi::ErrorCode code);

snapgate::qnn::abi::Version version_from(const char* variable, const snapgate::qnn::abi::Version& otherwise);

bool is_null_slot(const char* call);

std::string setting(const char* variable);

} // namespace standin
