// The part of the QNN C interface that this runner uses, declared in our own words.
//
// Where the facts come from: sizes and offsets were measured against the public headers of QAIRT 2.43.0 (core API
// 2.32, HTP API 5.43, System API 1.7) and exercised at run time against QAIRT 2.51.0 (core 2.40, HTP 5.51, System
// 1.15). They hold for 64-bit Linux and Android, x86-64 and arm64 alike. Older generations differ: QAIRT 2.13 (core
// 2.7, System 1.1) has four slots fewer in the core table, a 120-byte tensor and a 48-byte graph description. The
// loaders in qnn_library.cpp therefore refuse anything below the versions named here, before reading a table.
//
// No vendor header is included anywhere in this project.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__LP64__)
#error "the layouts below are those of 64-bit Linux and Android"
#endif

namespace snapgate::qnn::abi {

constexpr std::uint32_t kCoreMajor = 2;
constexpr std::uint32_t kCoreMinorMin = 8;
constexpr std::uint32_t kSystemMajor = 1;
constexpr std::uint32_t kSystemMinorMin = 7;
constexpr std::uint32_t kHtpBackendId = 6;

using ErrorCode = std::uint64_t; // the error itself is the low 16 bits
using Handle = void*;
using UnusedSlot = void (*)();

struct Version {
    std::uint32_t major;
    std::uint32_t minor;
    std::uint32_t patch;
};

static_assert(sizeof(Version) == 12);

// --- tensors
// -------------------------------------------------------------------------------------------------------

enum TensorType : std::uint32_t { kAppWrite = 0, kAppRead = 1 };

enum MemType : std::uint32_t { kMemRaw = 0, kMemHandle = 1 };

constexpr std::uint32_t kSparseLayoutNone = 0x7FFFFFFF;

enum DataType : std::uint32_t {
    kSFixed8 = 0x308,
    kSFixed16 = 0x316,
    kUFixed8 = 0x408,
    kUFixed16 = 0x416,
    kInt32 = 0x032,
    kFloat16 = 0x216,
    kFloat32 = 0x232,
};

constexpr std::uint32_t kQuantizationDefined = 1;
constexpr std::uint32_t kQuantizationUndefined = 0x7FFFFFFF;
constexpr std::uint32_t kEncodingScaleOffset = 0;

// real = scale * (q + offset): the offset is the negated zero point.
struct ScaleOffset {
    float scale;
    std::int32_t offset;
};

struct QuantizeParams {
    std::uint32_t definition;
    std::uint32_t encoding;

    union {
        ScaleOffset scale_offset;
        std::uint64_t other[4];
    };
};

static_assert(sizeof(QuantizeParams) == 40);

struct ClientBuffer {
    void* data;
    std::uint32_t data_size; // bytes; 32 bits, so no tensor may be 4 GiB or more
};

// Version 1 ends after `client_buffer`; the rest exists in version 2 only. Both occupy 144 bytes in an array.
struct Tensor {
    std::uint32_t version;
    std::uint32_t pad0;
    std::uint32_t id;
    std::uint32_t pad1;
    const char* name;
    std::uint32_t type;
    std::uint32_t data_format;
    std::uint32_t data_type;
    std::uint32_t pad2;
    QuantizeParams quantize;
    std::uint32_t rank;
    std::uint32_t pad3;
    const std::uint32_t* dimensions;
    std::uint32_t mem_type;
    std::uint32_t pad4;

    union {
        ClientBuffer client_buffer;
        Handle mem_handle; // with kMemHandle
    };

    const std::uint8_t* is_dynamic_dimensions;
    std::uint32_t sparse_layout;
    std::uint32_t sparse_n_specified;
    std::uint32_t sparse_n_dims;
    std::uint8_t is_produced;
};

static_assert(sizeof(Tensor) == 144 && offsetof(Tensor, name) == 16 && offsetof(Tensor, quantize) == 40);
static_assert(offsetof(Tensor, rank) == 80 && offsetof(Tensor, dimensions) == 88);
static_assert(offsetof(Tensor, mem_type) == 96 && offsetof(Tensor, client_buffer) == 104);
static_assert(offsetof(Tensor, is_dynamic_dimensions) == 120 && offsetof(Tensor, sparse_layout) == 128);

// --- registered memory
// ---------------------------------------------------------------------------------------------

// A tensor's memory as memRegister is told of it. The HTP takes a part of a DMA-buf as its custom kind.
struct MemDescriptor {
    std::uint32_t n_dimensions;
    std::uint32_t pad;
    const std::uint32_t* dimensions;
    const char* shape_config; // null
    std::uint32_t data_type;
    std::uint32_t mem_type;

    union {
        const void* custom;
        std::uint64_t longest[2];
    };
};

static_assert(sizeof(MemDescriptor) == 48 && offsetof(MemDescriptor, dimensions) == 8);
static_assert(offsetof(MemDescriptor, data_type) == 24 && offsetof(MemDescriptor, custom) == 32);
constexpr std::uint32_t kMemDescriptorCustom = 2;

struct HtpSharedBuffer {
    std::uint32_t type;
    std::uint32_t pad0;
    std::uint64_t size; // of the whole DMA-buf
    std::int32_t fd;
    std::uint32_t pad1;
    std::uint64_t offset; // of the tensor in it
};

static_assert(sizeof(HtpSharedBuffer) == 32 && offsetof(HtpSharedBuffer, fd) == 16);
static_assert(offsetof(HtpSharedBuffer, offset) == 24);
constexpr std::uint32_t kHtpMemSharedBuffer = 1;

// --- configuration
// -------------------------------------------------------------------------------------------------

// Backend, context, graph and device options share this shape; arrays of pointers to it end with a null pointer.
struct Config {
    std::uint32_t option;
    std::uint32_t pad;

    union {
        const void* custom;
        std::uint64_t other;
    };
};

static_assert(sizeof(Config) == 16);
constexpr std::uint32_t kConfigCustom = 0;

// HTP device option "SoC". The value moved from offset 4 (HTP API up to 5.43) to offset 8 (5.51); written at both,
// one struct serves every version, which the "arch" option cannot do.
struct HtpDeviceSoc {
    std::uint32_t option; // 0: SoC
    std::uint32_t soc_number_up_to_5_43;
    std::uint32_t soc_number_from_5_51;
    std::uint32_t pad;
};

static_assert(sizeof(HtpDeviceSoc) == 16);
constexpr std::uint32_t kHtpDeviceOptionSoc = 0;

// --- HTP power votes
// -----------------------------------------------------------------------------------------------

enum PowerOption : std::uint32_t { kPowerDcvsV3 = 1, kPowerRpcLatency = 2, kPowerRpcPolling = 3 };

struct DcvsV3 {
    std::uint32_t context_id; // the power config id
    std::uint32_t set_dcvs_enable, dcvs_enable;
    std::uint32_t power_mode;
    std::uint32_t set_sleep_latency, sleep_latency_us;
    std::uint32_t set_sleep_disable, sleep_disable;
    std::uint32_t set_bus, bus_min, bus_target, bus_max;
    std::uint32_t set_core, core_min, core_target, core_max;
};

constexpr std::uint32_t kPowerModePowerSaver = 0x04;
constexpr std::uint32_t kPowerModePerformance = 0x10;

// Voltage corners of bus and core, lowest to highest.
enum Corner : std::uint32_t {
    kCornerDisable = 0x10,
    kCornerSvs2 = 0x30,
    kCornerSvs = 0x40,
    kCornerSvsPlus = 0x50,
    kCornerNominal = 0x60,
    kCornerNominalPlus = 0x70,
    kCornerTurbo = 0x80,
    kCornerMax = 0xA0,
};

struct PowerConfig {
    std::uint32_t option;

    union {
        DcvsV3 dcvs;
        std::uint32_t microseconds;
    };
};

static_assert(sizeof(DcvsV3) == 64 && sizeof(PowerConfig) == 68 && alignof(PowerConfig) == 4);

struct HtpInfrastructure {
    std::uint32_t type; // 0: performance
    std::uint32_t pad;
    ErrorCode (*create_power_config_id)(std::uint32_t device, std::uint32_t core, std::uint32_t* id);
    ErrorCode (*destroy_power_config_id)(std::uint32_t id);
    ErrorCode (*set_power_config)(std::uint32_t id, const PowerConfig** configs);
    UnusedSlot set_memory_config;
};

static_assert(sizeof(HtpInfrastructure) == 40);
constexpr std::uint32_t kInfrastructurePerformance = 0;

// --- graph priority and profiling
// -----------------------------------------------------------------------------------

constexpr std::uint32_t kGraphConfigPriority = 3; // the value is the first member of the union

enum Priority : std::uint32_t {
    kPriorityLow = 0,
    kPriorityNormal = 100,
    kPriorityNormalHigh = 150,
    kPriorityHigh = 200,
};

enum ProfileLevel : std::uint32_t { kProfileBasic = 1, kProfileDetailed = 2, kProfileHtpLinting = 7001 };

enum ProfileUnit : std::uint32_t {
    kUnitMicroseconds = 1,
    kUnitBytes = 2,
    kUnitCycles = 3,
    kUnitCount = 4,
    kUnitObject = 5,
    kUnitNone = 6,
};

struct ProfileEvent {
    std::uint32_t type;
    std::uint32_t unit;
    std::uint64_t value;
    const char* identifier; // may be null
};

static_assert(sizeof(ProfileEvent) == 24 && offsetof(ProfileEvent, identifier) == 16);

// --- core table: the first 49 slots, the same in every version accepted
// ---------------------------------------------

using LogCallback = void (*)(const char* format, std::uint32_t level, std::uint64_t timestamp, __builtin_va_list);
constexpr std::uint32_t kLogLevelError = 1;
constexpr std::uint32_t kLogLevelWarning = 2;

struct CoreTable {
    UnusedSlot property_has_capability;
    ErrorCode (*backend_create)(Handle log, const Config** config, Handle* backend);
    UnusedSlot backend_set_config;
    UnusedSlot backend_get_api_version;
    ErrorCode (*backend_get_build_id)(const char** id);
    UnusedSlot backend_unused[3]; // 5-7
    ErrorCode (*backend_free)(Handle backend);
    UnusedSlot context_create;
    UnusedSlot context_unused[3]; // 10-12
    ErrorCode (*context_create_from_binary)(Handle backend, Handle device, const Config** config, const void* binary,
                                            std::uint64_t size, Handle* context, Handle profile);
    ErrorCode (*context_free)(Handle context, Handle profile);
    UnusedSlot graph_unused[2]; // 15-16
    ErrorCode (*graph_set_config)(Handle graph, const Config** config);
    UnusedSlot graph_unused_too[2]; // 18-19
    ErrorCode (*graph_retrieve)(Handle context, const char* name, Handle* graph);
    ErrorCode (*graph_execute)(Handle graph, const Tensor* inputs, std::uint32_t n_inputs, Tensor* outputs,
                               std::uint32_t n_outputs, Handle profile, Handle signal);
    UnusedSlot tensor_unused[3]; // 22-24
    ErrorCode (*log_create)(LogCallback callback, std::uint32_t max_level, Handle* log);
    UnusedSlot log_set_level;
    ErrorCode (*log_free)(Handle log);
    ErrorCode (*profile_create)(Handle backend, std::uint32_t level, Handle* profile);
    UnusedSlot profile_set_config;
    ErrorCode (*profile_get_events)(Handle profile, const std::uint64_t** events, std::uint32_t* n_events);
    ErrorCode (*profile_get_sub_events)(std::uint64_t event, const std::uint64_t** events, std::uint32_t* n_events);
    ErrorCode (*profile_get_event_data)(std::uint64_t event, ProfileEvent* data);
    UnusedSlot profile_get_extended_event_data;
    ErrorCode (*profile_free)(Handle profile);
    ErrorCode (*mem_register)(Handle context, const MemDescriptor* descriptors, std::uint32_t n, Handle* handles);
    ErrorCode (*mem_deregister)(const Handle* handles, std::uint32_t n);
    UnusedSlot device_info_unused[2];
    ErrorCode (*device_get_infrastructure)(const HtpInfrastructure** infrastructure);
    ErrorCode (*device_create)(Handle log, const Config** config, Handle* device);
    UnusedSlot device_unused[2]; // 41-42
    ErrorCode (*device_free)(Handle device);
    UnusedSlot signal_unused[4]; // 44-47
    UnusedSlot error_get_message;
};

static_assert(offsetof(CoreTable, backend_free) == 8 * 8);
static_assert(offsetof(CoreTable, context_create_from_binary) == 13 * 8);
static_assert(offsetof(CoreTable, graph_retrieve) == 20 * 8 && offsetof(CoreTable, graph_execute) == 21 * 8);
static_assert(offsetof(CoreTable, graph_set_config) == 17 * 8 && offsetof(CoreTable, profile_create) == 28 * 8);
static_assert(offsetof(CoreTable, profile_get_events) == 30 * 8 && offsetof(CoreTable, profile_free) == 34 * 8);
static_assert(offsetof(CoreTable, mem_register) == 35 * 8 && offsetof(CoreTable, mem_deregister) == 36 * 8);
static_assert(offsetof(CoreTable, log_create) == 25 * 8 && offsetof(CoreTable, log_free) == 27 * 8);
static_assert(offsetof(CoreTable, device_get_infrastructure) == 39 * 8);
static_assert(offsetof(CoreTable, device_create) == 40 * 8 && offsetof(CoreTable, device_free) == 43 * 8);
static_assert(offsetof(CoreTable, error_get_message) == 48 * 8);

struct Provider {
    std::uint32_t backend_id;
    std::uint32_t pad;
    const char* name;
    Version core;
    Version backend;
    CoreTable table; // by value, longer than declared here
};

static_assert(offsetof(Provider, core) == 16 && offsetof(Provider, table) == 40);

using GetProviders = ErrorCode (*)(const Provider*** providers, std::uint32_t* n_providers);
constexpr const char* kGetProvidersSymbol = "QnnInterface_getProviders";

// --- system library: what a context binary says about itself
// ---------------------------------------------------------

struct BinaryInfo;

struct SystemTable {
    ErrorCode (*context_create)(Handle* system_context);
    UnusedSlot get_binary_info;
    ErrorCode (*get_metadata)(Handle system_context, const void* binary, std::uint64_t size, const BinaryInfo** info);
    ErrorCode (*context_free)(Handle system_context);
};

struct SystemProvider {
    std::uint32_t id;
    std::uint32_t pad;
    const char* name;
    Version version;
    std::uint32_t pad1;
    SystemTable table;
};

static_assert(offsetof(SystemProvider, version) == 16 && offsetof(SystemProvider, table) == 32);

using GetSystemProviders = ErrorCode (*)(const SystemProvider*** providers, std::uint32_t* n_providers);
constexpr const char* kGetSystemProvidersSymbol = "QnnSystemInterface_getProviders";

// One graph of a context binary. Version 1 ends after `outputs`; the array stride is 88 bytes for every version.
struct GraphInfo {
    std::uint32_t version;
    std::uint32_t pad0;
    const char* name;
    std::uint32_t n_inputs;
    std::uint32_t pad1;
    const Tensor* inputs;
    std::uint32_t n_outputs;
    std::uint32_t pad2;
    const Tensor* outputs;
    std::uint64_t version_2[2];
    std::uint32_t metadata_size; // from here on version 3
    std::uint32_t pad3;
    const void* metadata; // HTP: begins with HtpGraphMetadata
    std::uint64_t operators;
};

static_assert(sizeof(GraphInfo) == 88 && offsetof(GraphInfo, outputs) == 40);

struct BinaryInfoV1 { // version 2 appends a pointer that is not used here
    std::uint32_t backend_id;
    std::uint32_t pad0;
    const char* build_id;
    Version core;
    Version backend;
    const char* soc_version;
    Version hardware_blob;
    Version context_blob;
    std::uint32_t hardware_blob_size;
    std::uint32_t pad1;
    const void* hardware_blob_data;
    std::uint64_t context_blob_size;
    std::uint32_t n_context_tensors;
    std::uint32_t pad2;
    const Tensor* context_tensors;
    std::uint32_t n_graphs;
    std::uint32_t pad3;
    const GraphInfo* graphs;
};

static_assert(offsetof(BinaryInfoV1, context_blob) == 60 && offsetof(BinaryInfoV1, hardware_blob_data) == 80);
static_assert(offsetof(BinaryInfoV1, n_graphs) == 112 && offsetof(BinaryInfoV1, graphs) == 120);

struct BinaryInfoV3 {
    std::uint32_t backend_id;
    std::uint32_t pad0;
    const char* build_id;
    Version core;
    Version backend;
    const char* soc_version;
    Version context_blob;
    std::uint32_t pad1;
    std::uint64_t context_blob_size;
    std::uint32_t n_context_tensors;
    std::uint32_t pad2;
    const Tensor* context_tensors;
    std::uint32_t n_graphs;
    std::uint32_t pad3;
    const GraphInfo* graphs;
    const void* platform;
    std::uint32_t metadata_size;
    std::uint32_t pad4;
    const void* metadata; // HTP: HtpContextMetadata
    std::uint32_t soc_number;
};

static_assert(offsetof(BinaryInfoV3, context_blob_size) == 64 && offsetof(BinaryInfoV3, graphs) == 96);
static_assert(offsetof(BinaryInfoV3, metadata) == 120 && offsetof(BinaryInfoV3, soc_number) == 128);

struct BinaryInfo {
    std::uint32_t version; // 1, 2 or 3
    std::uint32_t pad;

    union {
        BinaryInfoV1 v1; // versions 1 and 2
        BinaryInfoV3 v3;
    };
};

static_assert(sizeof(BinaryInfo) == 144 && offsetof(BinaryInfo, v3) == 8);

// The first 24 bytes of what the HTP says about a graph.
struct HtpGraphMetadata {
    std::uint32_t version; // 1
    std::uint32_t pad;
    std::uint64_t spill_fill_bytes;
    std::uint32_t vtcm_bytes;
    std::uint32_t optimization_level;
};

static_assert(sizeof(HtpGraphMetadata) == 24 && offsetof(GraphInfo, metadata) == 72);

struct HtpContextMetadata {
    std::uint32_t version; // 1
    std::uint32_t dsp_arch;
};

} // namespace snapgate::qnn::abi
