#include "qnn_codes.h"

#include <array>

namespace snapgate::qnn {
namespace {

struct NamedError {
    std::uint16_t number;
    const char* name;
};

constexpr std::array kErrors = {
    NamedError{0, "SUCCESS"},
    // any call
    NamedError{1000, "NOT_SUPPORTED"},
    NamedError{1002, "MEM_ALLOC"},
    NamedError{1003, "SYSTEM"},
    NamedError{1004, "INVALID_ARGUMENT"},
    NamedError{1005, "OPERATION_NOT_PERMITTED"},
    NamedError{1006, "PLATFORM_NOT_SUPPORTED"},
    NamedError{1007, "SYSTEM_COMMUNICATION"},
    NamedError{1008, "INCOMPATIBLE_BINARIES"},
    NamedError{1009, "LOADING_BINARIES"},
    NamedError{1010, "RESOURCE_UNAVAILABLE"},
    NamedError{1011, "SYSTEM_COMMUNICATION_FATAL"},
    NamedError{1100, "GENERAL"},
    NamedError{2000, "PROPERTY_UNKNOWN_KEY"},
    NamedError{3110, "OP_PACKAGE_VALIDATION_FAILURE"},
    // context
    NamedError{5000, "CONTEXT_INVALID_ARGUMENT"},
    NamedError{5001, "CONTEXT_DOES_NOT_EXIST"},
    NamedError{5002, "CONTEXT_INVALID_HANDLE"},
    NamedError{5003, "CONTEXT_NOT_FINALIZED"},
    NamedError{5004, "CONTEXT_BINARY_VERSION"},
    NamedError{5005, "CONTEXT_CREATE_FROM_BINARY"},
    NamedError{5006, "CONTEXT_GET_BINARY_SIZE"},
    NamedError{5007, "CONTEXT_GET_BINARY"},
    NamedError{5008, "CONTEXT_BINARY_CONFIGURATION"},
    NamedError{5009, "CONTEXT_SET_PROFILE"},
    NamedError{5010, "CONTEXT_INVALID_CONFIG"},
    NamedError{5011, "CONTEXT_BINARY_SUBOPTIMAL"},
    NamedError{5012, "CONTEXT_ABORTED"},
    NamedError{5013, "CONTEXT_TIMED_OUT"},
    NamedError{5014, "CONTEXT_INCREMENT_INVALID_BUFFER"},
    // graph
    NamedError{6000, "GRAPH_INVALID_ARGUMENT"},
    NamedError{6001, "GRAPH_INVALID_HANDLE"},
    NamedError{6002, "GRAPH_DOES_NOT_EXIST"},
    NamedError{6003, "GRAPH_INVALID_NAME"},
    NamedError{6004, "GRAPH_INVALID_TENSOR"},
    NamedError{6005, "GRAPH_INVALID_OP_CONFIG"},
    NamedError{6006, "GRAPH_SET_PROFILE"},
    NamedError{6007, "GRAPH_UNCONNECTED_NODE"},
    NamedError{6020, "GRAPH_CREATE_FAILED"},
    NamedError{6021, "GRAPH_OPTIMIZATION_FAILED"},
    NamedError{6022, "GRAPH_FINALIZE_FAILED"},
    NamedError{6023, "GRAPH_NOT_FINALIZED"},
    NamedError{6024, "GRAPH_FINALIZED"},
    NamedError{6025, "GRAPH_ASYNC_FIFO_FULL"},
    NamedError{6030, "GRAPH_SIGNAL_IN_USE"},
    NamedError{6031, "GRAPH_ABORTED"},
    NamedError{6032, "GRAPH_PROFILE_IN_USE"},
    NamedError{6033, "GRAPH_TIMED_OUT"},
    NamedError{6034, "GRAPH_SUBGRAPH"},
    NamedError{6035, "GRAPH_DISABLED"},
    NamedError{6036, "GRAPH_DYNAMIC_SHAPE"},
    NamedError{6037, "GRAPH_SPARSITY"},
    NamedError{6038, "GRAPH_EARLY_TERMINATION"},
    NamedError{6039, "GRAPH_INVALID_CONTEXT"},
    // tensor, memory
    NamedError{7001, "TENSOR_INVALID_HANDLE"},
    NamedError{7002, "TENSOR_DOES_NOT_EXIST"},
    NamedError{7003, "TENSOR_ALREADY_EXISTS"},
    NamedError{7004, "TENSOR_INVALID_PARAM"},
    NamedError{7005, "TENSOR_UNSUPPORTED_PARAM"},
    NamedError{7006, "TENSOR_NAME_HASH_COLLISION"},
    NamedError{7007, "TENSOR_INCOMPATIBLE_UPDATE"},
    NamedError{8000, "MEM_INVALID_ARGUMENT"},
    NamedError{8001, "MEM_INVALID_HANDLE"},
    NamedError{8002, "MEM_ALREADY_REGISTERED"},
    NamedError{8003, "MEM_MAPPING"},
    NamedError{8004, "MEM_INVALID_SHAPE"},
    NamedError{8005, "MEM_UNSUPPORTED_TYPE"},
    // log, profile, power
    NamedError{11002, "LOG_INITIALIZATION"},
    NamedError{11003, "LOG_INVALID_ARGUMENT"},
    NamedError{11004, "LOG_INVALID_HANDLE"},
    NamedError{12000, "PROFILE_UNSUPPORTED"},
    NamedError{12001, "PROFILE_INVALID_ARGUMENT"},
    NamedError{12002, "PROFILE_INVALID_HANDLE"},
    NamedError{13000, "POWER_INVALID_HANDLE"},
    NamedError{13001, "POWER_INVALID_INPUT"},
    NamedError{13002, "POWER_UNSUPPORTED_CONFIG"},
    NamedError{13003, "POWER_TRANSPORT"},
    NamedError{13004, "POWER_UNSUPPORTED"},
    NamedError{13005, "POWER_MEM_ALLOC"},
    NamedError{13006, "POWER_FAILED"},
    // device, system
    NamedError{14000, "DEVICE_INVALID_HANDLE"},
    NamedError{14001, "DEVICE_INVALID_CONFIG"},
    NamedError{14002, "DEVICE_HARDWARE_UNAVAILABLE"},
    NamedError{14003, "DEVICE_ASSOCIATED_TO_CONTEXT"},
    NamedError{30000, "SYSTEM_INVALID_HANDLE"},
    NamedError{30001, "SYSTEM_INVALID_ARGUMENT"},
    NamedError{30002, "SYSTEM_OPERATION_FAILED"},
    NamedError{30010, "SYSTEM_MALFORMED_BINARY"},
};

} // namespace

const char* error_name(std::uint64_t code) noexcept {
    for (const NamedError& error : kErrors) {
        if (error.number == error_number(code)) {
            return error.name;
        }
    }
    return "UNKNOWN";
}

Fault call_fault(ExitCode exit_code, std::string where, const char* call, std::uint64_t code, const char* next_step) {
    Fault fault{exit_code, std::move(where), std::string(call) + " failed", "", "success", next_step};
    if (error_number(code) == 0) {
        fault.found = "no error, and nothing made";
    } else {
        fault.found = "QNN error " + std::to_string(error_number(code)) + " " + error_name(code);
        fault.qnn_code = code;
    }
    return fault;
}

} // namespace snapgate::qnn
