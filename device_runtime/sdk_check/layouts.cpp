// Compiled where a QAIRT SDK is named (-DQNN_SDK_ROOT=...): every layout of src/qnn_abi.h against the SDK's own
// headers. Nothing of it is linked into the runner. A failure names the layout; the headers' version is in
// QnnSdkBuildId.h or sdk.yaml of the SDK.
#include "qnn_abi.h"

#include <HTP/QnnHtpDevice.h>
#include <HTP/QnnHtpGraph.h>
#include <HTP/QnnHtpMem.h>
#include <HTP/QnnHtpPerfInfrastructure.h>
#include <QnnContext.h>
#include <QnnDevice.h>
#include <QnnGraph.h>
#include <QnnInterface.h>
#include <QnnMem.h>
#include <QnnProfile.h>
#include <QnnTypes.h>
#include <System/QnnSystemContext.h>
#include <System/QnnSystemInterface.h>

#include <cstddef>
#include <type_traits>

namespace {

namespace abi = snapgate::qnn::abi;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #theirs " has another size")
#define SAME_PLACE(ours, member, theirs, their_member)                                                                 \
    static_assert(offsetof(ours, member) == offsetof(theirs, their_member), #theirs "." #their_member " has moved")
#define SAME_VALUE(ours, theirs)                                                                                       \
    static_assert(static_cast<std::uint64_t>(ours) == static_cast<std::uint64_t>(theirs), #theirs " has another "      \
                                                                                                  "value")

// --- versions accepted
static_assert(QNN_API_VERSION_MAJOR == abi::kCoreMajor && QNN_API_VERSION_MINOR >= abi::kCoreMinorMin,
              "the SDK's core API is none that the runner accepts");
static_assert(QNN_SYSTEM_API_VERSION_MAJOR == abi::kSystemMajor && QNN_SYSTEM_API_VERSION_MINOR >= abi::kSystemMinorMin,
              "the SDK's System API is none that the runner accepts");
SAME_SIZE(abi::Version, Qnn_Version_t);

// --- tensors
SAME_SIZE(abi::Tensor, Qnn_Tensor_t);
SAME_SIZE(abi::QuantizeParams, Qnn_QuantizeParams_t);
SAME_PLACE(abi::QuantizeParams, encoding, Qnn_QuantizeParams_t, quantizationEncoding);
SAME_PLACE(abi::QuantizeParams, scale_offset, Qnn_QuantizeParams_t, scaleOffsetEncoding);
SAME_SIZE(abi::ScaleOffset, Qnn_ScaleOffset_t);
SAME_PLACE(abi::ScaleOffset, offset, Qnn_ScaleOffset_t, offset);
SAME_SIZE(abi::ClientBuffer, Qnn_ClientBuffer_t);
SAME_PLACE(abi::ClientBuffer, data_size, Qnn_ClientBuffer_t, dataSize);
#define SAME_TENSOR_PLACE(member, their_member)                                                                        \
    static_assert(offsetof(abi::Tensor, member) ==                                                                     \
                      offsetof(Qnn_Tensor_t, v1) + offsetof(Qnn_TensorV1_t, their_member),                             \
                  "Qnn_TensorV1_t." #their_member " has moved");                                                       \
    static_assert(offsetof(abi::Tensor, member) ==                                                                     \
                      offsetof(Qnn_Tensor_t, v2) + offsetof(Qnn_TensorV2_t, their_member),                             \
                  "Qnn_TensorV2_t." #their_member " has moved")
SAME_TENSOR_PLACE(id, id);
SAME_TENSOR_PLACE(name, name);
SAME_TENSOR_PLACE(type, type);
SAME_TENSOR_PLACE(data_format, dataFormat);
SAME_TENSOR_PLACE(data_type, dataType);
SAME_TENSOR_PLACE(quantize, quantizeParams);
SAME_TENSOR_PLACE(rank, rank);
SAME_TENSOR_PLACE(dimensions, dimensions);
SAME_TENSOR_PLACE(mem_type, memType);
SAME_TENSOR_PLACE(client_buffer, clientBuf);
static_assert(offsetof(abi::Tensor, is_dynamic_dimensions) ==
                  offsetof(Qnn_Tensor_t, v2) + offsetof(Qnn_TensorV2_t, isDynamicDimensions),
              "Qnn_TensorV2_t.isDynamicDimensions has moved");
static_assert(offsetof(abi::Tensor, sparse_layout) ==
                  offsetof(Qnn_Tensor_t, v2) + offsetof(Qnn_TensorV2_t, sparseParams),
              "Qnn_TensorV2_t.sparseParams has moved");
static_assert(offsetof(abi::Tensor, is_produced) == offsetof(Qnn_Tensor_t, v2) + offsetof(Qnn_TensorV2_t, isProduced),
              "Qnn_TensorV2_t.isProduced has moved");
SAME_VALUE(abi::kAppWrite, QNN_TENSOR_TYPE_APP_WRITE);
SAME_VALUE(abi::kAppRead, QNN_TENSOR_TYPE_APP_READ);
SAME_VALUE(abi::kMemRaw, QNN_TENSORMEMTYPE_RAW);
SAME_VALUE(abi::kInt32, QNN_DATATYPE_INT_32);
SAME_VALUE(abi::kFloat16, QNN_DATATYPE_FLOAT_16);
SAME_VALUE(abi::kFloat32, QNN_DATATYPE_FLOAT_32);
SAME_VALUE(abi::kUFixed8, QNN_DATATYPE_UFIXED_POINT_8);
SAME_VALUE(abi::kUFixed16, QNN_DATATYPE_UFIXED_POINT_16);
SAME_VALUE(abi::kSFixed8, QNN_DATATYPE_SFIXED_POINT_8);
SAME_VALUE(abi::kSFixed16, QNN_DATATYPE_SFIXED_POINT_16);
SAME_VALUE(abi::kQuantizationDefined, QNN_DEFINITION_DEFINED);
SAME_VALUE(abi::kQuantizationUndefined, QNN_DEFINITION_UNDEFINED);
SAME_VALUE(abi::kEncodingScaleOffset, QNN_QUANTIZATION_ENCODING_SCALE_OFFSET);

// --- the core table
#define SAME_SLOT(ours, theirs)                                                                                        \
    static_assert(offsetof(abi::CoreTable, ours) == offsetof(QNN_INTERFACE_VER_TYPE, theirs),                          \
                  "the slot of " #theirs " has moved")
SAME_SLOT(property_has_capability, propertyHasCapability);
SAME_SLOT(backend_create, backendCreate);
SAME_SLOT(backend_get_build_id, backendGetBuildId);
SAME_SLOT(backend_free, backendFree);
SAME_SLOT(context_create_from_binary, contextCreateFromBinary);
SAME_SLOT(context_free, contextFree);
SAME_SLOT(graph_retrieve, graphRetrieve);
SAME_SLOT(graph_execute, graphExecute);
SAME_SLOT(graph_set_config, graphSetConfig);
SAME_SLOT(profile_create, profileCreate);
SAME_SLOT(profile_get_events, profileGetEvents);
SAME_SLOT(profile_get_sub_events, profileGetSubEvents);
SAME_SLOT(profile_get_event_data, profileGetEventData);
SAME_SLOT(profile_free, profileFree);
SAME_SLOT(mem_register, memRegister);
SAME_SLOT(mem_deregister, memDeRegister);
SAME_SLOT(log_create, logCreate);
SAME_SLOT(log_free, logFree);
SAME_SLOT(device_get_infrastructure, deviceGetInfrastructure);
SAME_SLOT(device_create, deviceCreate);
SAME_SLOT(device_free, deviceFree);
SAME_SLOT(error_get_message, errorGetMessage);
SAME_PLACE(abi::Provider, name, QnnInterface_t, providerName);
SAME_PLACE(abi::Provider, core, QnnInterface_t, apiVersion);
static_assert(offsetof(abi::Provider, backend) ==
                  offsetof(QnnInterface_t, apiVersion) + offsetof(Qnn_ApiVersion_t, backendApiVersion),
              "Qnn_ApiVersion_t.backendApiVersion has moved");
SAME_PLACE(abi::Provider, table, QnnInterface_t, QNN_INTERFACE_VER_NAME);

// --- registered memory
SAME_TENSOR_PLACE(mem_handle, memHandle);
SAME_VALUE(abi::kMemHandle, QNN_TENSORMEMTYPE_MEMHANDLE);
SAME_SIZE(abi::MemDescriptor, Qnn_MemDescriptor_t);
static_assert(offsetof(abi::MemDescriptor, dimensions) ==
                  offsetof(Qnn_MemDescriptor_t, memShape) + offsetof(Qnn_MemShape_t, dimSize),
              "Qnn_MemShape_t.dimSize has moved");
SAME_PLACE(abi::MemDescriptor, data_type, Qnn_MemDescriptor_t, dataType);
SAME_PLACE(abi::MemDescriptor, mem_type, Qnn_MemDescriptor_t, memType);
SAME_PLACE(abi::MemDescriptor, custom, Qnn_MemDescriptor_t, customInfo);
SAME_VALUE(abi::kMemDescriptorCustom, QNN_MEM_TYPE_CUSTOM);
SAME_SIZE(abi::HtpSharedBuffer, QnnMemHtp_Descriptor_t);
SAME_PLACE(abi::HtpSharedBuffer, size, QnnMemHtp_Descriptor_t, size);
static_assert(offsetof(abi::HtpSharedBuffer, fd) ==
                  offsetof(QnnMemHtp_Descriptor_t, sharedBufferConfig) + offsetof(QnnHtpMem_SharedBufferConfig_t, fd),
              "QnnHtpMem_SharedBufferConfig_t.fd has moved");
static_assert(offsetof(abi::HtpSharedBuffer, offset) == offsetof(QnnMemHtp_Descriptor_t, sharedBufferConfig) +
                                                            offsetof(QnnHtpMem_SharedBufferConfig_t, offset),
              "QnnHtpMem_SharedBufferConfig_t.offset has moved");
SAME_VALUE(abi::kHtpMemSharedBuffer, QNN_HTP_MEM_SHARED_BUFFER);

// --- options
SAME_SIZE(abi::Config, QnnDevice_Config_t);
SAME_PLACE(abi::Config, custom, QnnDevice_Config_t, customConfig);
SAME_SIZE(abi::Config, QnnContext_Config_t);
SAME_SIZE(abi::Config, QnnGraph_Config_t);
SAME_PLACE(abi::Config, custom, QnnGraph_Config_t, customConfig);
SAME_VALUE(abi::kConfigCustom, QNN_DEVICE_CONFIG_OPTION_CUSTOM);
SAME_VALUE(abi::kConfigCustom, QNN_GRAPH_CONFIG_OPTION_CUSTOM);
SAME_VALUE(abi::kHtpDeviceOptionSoc, QNN_HTP_DEVICE_CONFIG_OPTION_SOC);
// One struct serves both layouts that are known: the number stands at either place.
static_assert(offsetof(QnnHtpDevice_CustomConfig_t, socModel) == offsetof(abi::HtpDeviceSoc, soc_number_up_to_5_43) ||
                  offsetof(QnnHtpDevice_CustomConfig_t, socModel) == offsetof(abi::HtpDeviceSoc, soc_number_from_5_51),
              "QnnHtpDevice_CustomConfig_t.socModel is at neither known place");
static_assert(sizeof(QnnHtpDevice_CustomConfig_t) <= sizeof(abi::HtpDeviceSoc),
              "QnnHtpDevice_CustomConfig_t is longer than what the runner passes");

// --- power votes
SAME_SIZE(abi::DcvsV3, QnnHtpPerfInfrastructure_DcvsV3_t);
SAME_PLACE(abi::DcvsV3, power_mode, QnnHtpPerfInfrastructure_DcvsV3_t, powerMode);
SAME_PLACE(abi::DcvsV3, sleep_latency_us, QnnHtpPerfInfrastructure_DcvsV3_t, sleepLatency);
SAME_PLACE(abi::DcvsV3, sleep_disable, QnnHtpPerfInfrastructure_DcvsV3_t, sleepDisable);
SAME_PLACE(abi::DcvsV3, bus_max, QnnHtpPerfInfrastructure_DcvsV3_t, busVoltageCornerMax);
SAME_PLACE(abi::DcvsV3, core_max, QnnHtpPerfInfrastructure_DcvsV3_t, coreVoltageCornerMax);
SAME_SIZE(abi::PowerConfig, QnnHtpPerfInfrastructure_PowerConfig_t);
SAME_PLACE(abi::PowerConfig, dcvs, QnnHtpPerfInfrastructure_PowerConfig_t, dcvsV3Config);
SAME_PLACE(abi::PowerConfig, microseconds, QnnHtpPerfInfrastructure_PowerConfig_t, rpcPollingTimeConfig);
SAME_VALUE(abi::kPowerDcvsV3, QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3);
SAME_VALUE(abi::kPowerRpcLatency, QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY);
SAME_VALUE(abi::kPowerRpcPolling, QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME);
SAME_VALUE(abi::kCornerMax, DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER);
SAME_VALUE(abi::kCornerTurbo, DCVS_VOLTAGE_VCORNER_TURBO);
SAME_VALUE(abi::kCornerSvs2, DCVS_VOLTAGE_VCORNER_SVS2);

// --- priority and profiles
SAME_VALUE(abi::kGraphConfigPriority, QNN_GRAPH_CONFIG_OPTION_PRIORITY);
SAME_VALUE(abi::kPriorityLow, QNN_PRIORITY_LOW);
SAME_VALUE(abi::kPriorityNormal, QNN_PRIORITY_NORMAL);
SAME_VALUE(abi::kPriorityNormalHigh, QNN_PRIORITY_NORMAL_HIGH);
SAME_VALUE(abi::kPriorityHigh, QNN_PRIORITY_HIGH);
SAME_SIZE(abi::ProfileEvent, QnnProfile_EventData_t);
SAME_SIZE(abi::HtpInfrastructure, QnnHtpDevice_Infrastructure_t);
static_assert(offsetof(abi::HtpInfrastructure, create_power_config_id) ==
                  offsetof(QnnHtpDevice_Infrastructure_t, perfInfra) +
                      offsetof(QnnHtpDevice_PerfInfrastructure_t, createPowerConfigId),
              "createPowerConfigId has moved");
static_assert(offsetof(abi::HtpInfrastructure, set_power_config) ==
                  offsetof(QnnHtpDevice_Infrastructure_t, perfInfra) +
                      offsetof(QnnHtpDevice_PerfInfrastructure_t, setPowerConfig),
              "setPowerConfig has moved");

// --- the System library
#define SAME_SYSTEM_SLOT(ours, theirs)                                                                                 \
    static_assert(offsetof(abi::SystemTable, ours) == offsetof(QNN_SYSTEM_INTERFACE_VER_TYPE, theirs),                 \
                  "the slot of " #theirs " has moved")
SAME_SYSTEM_SLOT(context_create, systemContextCreate);
SAME_SYSTEM_SLOT(get_metadata, systemContextGetMetaData);
SAME_SYSTEM_SLOT(context_free, systemContextFree);
SAME_PLACE(abi::SystemProvider, version, QnnSystemInterface_t, systemApiVersion);
SAME_PLACE(abi::SystemProvider, table, QnnSystemInterface_t, QNN_SYSTEM_INTERFACE_VER_NAME);

SAME_SIZE(abi::GraphInfo, QnnSystemContext_GraphInfo_t);
#define SAME_GRAPH_PLACE(member, version, their_member)                                                                \
    static_assert(offsetof(abi::GraphInfo, member) ==                                                                  \
                      offsetof(QnnSystemContext_GraphInfo_t, graphInfo##version) +                                     \
                          offsetof(QnnSystemContext_GraphInfo##version##_t, their_member),                             \
                  "QnnSystemContext_GraphInfo" #version "_t." #their_member " has moved")
SAME_GRAPH_PLACE(name, V1, graphName);
SAME_GRAPH_PLACE(n_inputs, V1, numGraphInputs);
SAME_GRAPH_PLACE(inputs, V1, graphInputs);
SAME_GRAPH_PLACE(n_outputs, V1, numGraphOutputs);
SAME_GRAPH_PLACE(outputs, V1, graphOutputs);
SAME_GRAPH_PLACE(outputs, V2, graphOutputs);
SAME_GRAPH_PLACE(outputs, V3, graphOutputs);

SAME_SIZE(abi::BinaryInfo, QnnSystemContext_BinaryInfo_t);
SAME_PLACE(abi::BinaryInfo, v1, QnnSystemContext_BinaryInfo_t, contextBinaryInfoV1);
SAME_PLACE(abi::BinaryInfo, v3, QnnSystemContext_BinaryInfo_t, contextBinaryInfoV3);
SAME_PLACE(abi::BinaryInfoV1, build_id, QnnSystemContext_BinaryInfoV1_t, buildId);
SAME_PLACE(abi::BinaryInfoV1, context_blob, QnnSystemContext_BinaryInfoV1_t, contextBlobVersion);
SAME_PLACE(abi::BinaryInfoV1, n_graphs, QnnSystemContext_BinaryInfoV1_t, numGraphs);
SAME_PLACE(abi::BinaryInfoV1, graphs, QnnSystemContext_BinaryInfoV1_t, graphs);
SAME_PLACE(abi::BinaryInfoV1, graphs, QnnSystemContext_BinaryInfoV2_t, graphs);
SAME_PLACE(abi::BinaryInfoV3, build_id, QnnSystemContext_BinaryInfoV3_t, buildId);
SAME_PLACE(abi::BinaryInfoV3, context_blob, QnnSystemContext_BinaryInfoV3_t, contextBlobVersion);
SAME_PLACE(abi::BinaryInfoV3, n_graphs, QnnSystemContext_BinaryInfoV3_t, numGraphs);
SAME_PLACE(abi::BinaryInfoV3, graphs, QnnSystemContext_BinaryInfoV3_t, graphs);
SAME_PLACE(abi::BinaryInfoV3, metadata_size, QnnSystemContext_BinaryInfoV3_t, contextMetadataSize);
SAME_PLACE(abi::BinaryInfoV3, metadata, QnnSystemContext_BinaryInfoV3_t, contextMetadata);
SAME_PLACE(abi::BinaryInfoV3, soc_number, QnnSystemContext_BinaryInfoV3_t, socModel);

// --- entry points
static_assert(std::is_same_v<decltype(&QnnInterface_getProviders),
                             Qnn_ErrorHandle_t (*)(const QnnInterface_t***, std::uint32_t*)>,
              "QnnInterface_getProviders has another shape");
SAME_SIZE(abi::ErrorCode, Qnn_ErrorHandle_t);

} // namespace
