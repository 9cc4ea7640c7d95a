#include "qnn_codes.h"

#include <catch2/catch.hpp>

using namespace snapgate;

TEST_CASE("QNN errors are named by their low 16 bits") {
    CHECK(std::string(qnn::error_name(0)) == "SUCCESS");
    CHECK(std::string(qnn::error_name(1002)) == "MEM_ALLOC");
    CHECK(std::string(qnn::error_name(0xABCD00000000ULL + 14001)) == "DEVICE_INVALID_CONFIG");
    CHECK(std::string(qnn::error_name(13002)) == "POWER_UNSUPPORTED_CONFIG");
    CHECK(std::string(qnn::error_name(30010)) == "SYSTEM_MALFORMED_BINARY");
    CHECK(std::string(qnn::error_name(59999)) == "UNKNOWN");
}

TEST_CASE("a failed call becomes a fault with call, number and name") {
    const Fault fault = qnn::call_fault(ExitCode::kDeviceFailed, "device", "deviceCreate", 14001, "look above");
    CHECK(fault.what == "deviceCreate failed");
    CHECK(fault.found == "QNN error 14001 DEVICE_INVALID_CONFIG");
    CHECK(fault.qnn_code == 14001U);
}

TEST_CASE("a call that made nothing without an error has no code") {
    const Fault fault = qnn::call_fault(ExitCode::kDeviceFailed, "device", "deviceCreate", 0xABCD00000000ULL, "look");
    CHECK(fault.found == "no error, and nothing made");
    CHECK_FALSE(fault.qnn_code.has_value());
}
