// A header tree for tests of sdk_check/, in place of an SDK's include folder: the layouts as they are known from QAIRT
// 2.43 and 2.51, under the names by which an SDK is included, and no line of an SDK.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define QNN_API_VERSION_MAJOR 2
#define QNN_API_VERSION_MINOR 40
#define QNN_SYSTEM_API_VERSION_MAJOR 1
#define QNN_SYSTEM_API_VERSION_MINOR 15

typedef uint64_t Qnn_ErrorHandle_t;
typedef void* Qnn_MemHandle_t;
typedef void (*Slot)(void);

typedef struct {
    uint32_t major, minor, patch;
} Qnn_Version_t;

typedef struct {
    Qnn_Version_t coreApiVersion;
    Qnn_Version_t backendApiVersion;
} Qnn_ApiVersion_t;

// --- tensors
enum { QNN_TENSOR_TYPE_APP_WRITE = 0, QNN_TENSOR_TYPE_APP_READ = 1 };

enum { QNN_TENSORMEMTYPE_RAW = 0, QNN_TENSORMEMTYPE_MEMHANDLE = 1 };

enum {
    QNN_DATATYPE_INT_32 = 0x032,
    QNN_DATATYPE_FLOAT_16 = 0x216,
    QNN_DATATYPE_FLOAT_32 = 0x232,
    QNN_DATATYPE_SFIXED_POINT_8 = 0x308,
    QNN_DATATYPE_SFIXED_POINT_16 = 0x316,
    QNN_DATATYPE_UFIXED_POINT_8 = 0x408,
    QNN_DATATYPE_UFIXED_POINT_16 = 0x416
};

enum { QNN_DEFINITION_DEFINED = 1, QNN_DEFINITION_UNDEFINED = 0x7FFFFFFF };

enum { QNN_QUANTIZATION_ENCODING_SCALE_OFFSET = 0 };

typedef struct {
    float scale;
    int32_t offset;
} Qnn_ScaleOffset_t;

typedef struct {
    uint32_t encodingDefinition;
    uint32_t quantizationEncoding;

    union {
        Qnn_ScaleOffset_t scaleOffsetEncoding;
        uint64_t longest[4];
    };
} Qnn_QuantizeParams_t;

typedef struct {
    void* data;
    uint32_t dataSize;
} Qnn_ClientBuffer_t;

#define TENSOR_HEAD                                                                                                    \
    uint32_t id;                                                                                                       \
    const char* name;                                                                                                  \
    uint32_t type;                                                                                                     \
    uint32_t dataFormat;                                                                                               \
    uint32_t dataType;                                                                                                 \
    Qnn_QuantizeParams_t quantizeParams;                                                                               \
    uint32_t rank;                                                                                                     \
    uint32_t* dimensions;                                                                                              \
    uint32_t memType;                                                                                                  \
    union {                                                                                                            \
        Qnn_ClientBuffer_t clientBuf;                                                                                  \
        Qnn_MemHandle_t memHandle;                                                                                     \
    };

typedef struct {
    TENSOR_HEAD
} Qnn_TensorV1_t;

typedef struct {
    uint32_t layout, numSpecified, numDims;
} Qnn_SparseParams_t;

typedef struct {
    TENSOR_HEAD
    uint8_t* isDynamicDimensions;
    Qnn_SparseParams_t sparseParams;
    uint8_t isProduced;
} Qnn_TensorV2_t;

typedef struct {
    uint32_t version;

    union {
        Qnn_TensorV1_t v1;
        Qnn_TensorV2_t v2;
    };
} Qnn_Tensor_t;

// --- core table
typedef struct {
    Slot propertyHasCapability;
    Slot backendCreate, backendSetConfig, backendGetApiVersion, backendGetBuildId;
    Slot backendRegisterOpPackage, backendGetSupportedOperations, backendValidateOpConfig, backendFree;
    Slot contextCreate, contextSetConfig, contextGetBinarySize, contextGetBinary, contextCreateFromBinary, contextFree;
    Slot graphCreate, graphCreateSubgraph, graphSetConfig, graphAddNode, graphFinalize, graphRetrieve, graphExecute;
    Slot graphExecuteAsync;
    Slot tensorCreateContextTensor, tensorCreateGraphTensor;
    Slot logCreate, logSetLogLevel, logFree;
    Slot profileCreate, profileSetConfig, profileGetEvents, profileGetSubEvents, profileGetEventData;
    Slot profileGetExtendedEventData, profileFree;
    Slot memRegister, memDeRegister;
    Slot deviceGetPlatformInfo, deviceFreePlatformInfo, deviceGetInfrastructure, deviceCreate, deviceSetConfig;
    Slot deviceGetInfo, deviceFree;
    Slot signalCreate, signalSetConfig, signalTrigger, signalFree;
    Slot errorGetMessage;
    Slot later[26];
} QnnInterface_ImplementationV2_40_t;

#define QNN_INTERFACE_VER_TYPE QnnInterface_ImplementationV2_40_t
#define QNN_INTERFACE_VER_NAME v2_40

typedef struct {
    uint32_t backendId;
    const char* providerName;
    Qnn_ApiVersion_t apiVersion;

    union {
        QNN_INTERFACE_VER_TYPE QNN_INTERFACE_VER_NAME;
    };
} QnnInterface_t;

#ifdef __cplusplus
extern "C" {
#endif
Qnn_ErrorHandle_t QnnInterface_getProviders(const QnnInterface_t*** providers, uint32_t* count);
#ifdef __cplusplus
}
#endif

// --- options
typedef struct {
    uint32_t option;

    union {
        void* customConfig;
        uint64_t other;
    };
} QnnDevice_Config_t;

typedef QnnDevice_Config_t QnnContext_Config_t;
typedef QnnDevice_Config_t QnnGraph_Config_t;

enum { QNN_DEVICE_CONFIG_OPTION_CUSTOM = 0 };

enum { QNN_GRAPH_CONFIG_OPTION_CUSTOM = 0, QNN_GRAPH_CONFIG_OPTION_PRIORITY = 3 };

enum { QNN_PRIORITY_LOW = 0, QNN_PRIORITY_NORMAL = 100, QNN_PRIORITY_NORMAL_HIGH = 150, QNN_PRIORITY_HIGH = 200 };

enum { QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE = 3 };

typedef struct {
    uint32_t option;

    union {
        uint32_t vtcmSizeInMB;
        uint64_t longest[6];
    };
} QnnHtpGraph_CustomConfig_t;

enum { QNN_HTP_DEVICE_CONFIG_OPTION_SOC = 0 };

typedef struct {
    uint32_t option;
#ifndef OLD_DEVICE_CONFIG // up to 5.43
    uint32_t aligned;
#endif
    union {
        uint32_t socModel;
        uint32_t pair[2];
    };
} QnnHtpDevice_CustomConfig_t;

// --- power votes
typedef struct {
    uint32_t contextId, setDcvsEnable, dcvsEnable, powerMode, setSleepLatency, sleepLatency, setSleepDisable;
    uint32_t sleepDisable, setBusParams, busVoltageCornerMin, busVoltageCornerTarget, busVoltageCornerMax;
    uint32_t setCoreParams, coreVoltageCornerMin, coreVoltageCornerTarget, coreVoltageCornerMax;
} QnnHtpPerfInfrastructure_DcvsV3_t;

typedef struct {
    uint32_t option;

    union {
        QnnHtpPerfInfrastructure_DcvsV3_t dcvsV3Config;
        uint32_t rpcControlLatencyConfig, rpcPollingTimeConfig;
    };
} QnnHtpPerfInfrastructure_PowerConfig_t;

enum {
    QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_DCVS_V3 = 1,
    QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_CONTROL_LATENCY = 2,
    QNN_HTP_PERF_INFRASTRUCTURE_POWER_CONFIGOPTION_RPC_POLLING_TIME = 3
};

enum {
    DCVS_VOLTAGE_VCORNER_SVS2 = 0x30,
    DCVS_VOLTAGE_VCORNER_TURBO = 0x80,
    DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER = 0xA0
};

typedef struct {
    Slot createPowerConfigId, destroyPowerConfigId, setPowerConfig, setMemoryConfig;
} QnnHtpDevice_PerfInfrastructure_t;

typedef struct {
    uint32_t infraType;

    union {
        QnnHtpDevice_PerfInfrastructure_t perfInfra;
    };
} QnnHtpDevice_Infrastructure_t;

// --- registered memory
enum { QNN_MEM_TYPE_CUSTOM = 2 };

typedef struct {
    uint32_t numDim;
    uint32_t* dimSize;
    const char* shapeConfig;
} Qnn_MemShape_t;

typedef struct {
    Qnn_MemShape_t memShape;
    uint32_t dataType;
    uint32_t memType;

    union {
        void* customInfo;
        uint64_t longest[2];
    };
} Qnn_MemDescriptor_t;

enum { QNN_HTP_MEM_SHARED_BUFFER = 1 };

typedef struct {
    int32_t fd;
    uint64_t offset;
} QnnHtpMem_SharedBufferConfig_t;

typedef struct {
    uint32_t type;
    uint64_t size;

    union {
        QnnHtpMem_SharedBufferConfig_t sharedBufferConfig;
    };
} QnnMemHtp_Descriptor_t;

// --- profiling
enum { QNN_PROFILE_LEVEL_BASIC = 1, QNN_PROFILE_LEVEL_DETAILED = 2 };

typedef struct {
    uint32_t type;
    uint32_t unit;
    uint64_t value;
    const char* identifier;
} QnnProfile_EventData_t;

// --- System library
typedef struct {
    Slot systemContextCreate, systemContextGetBinaryInfo, systemContextGetMetaData, systemContextFree;
    Slot later[86];
} QnnSystemInterface_ImplementationV1_15_t;

#define QNN_SYSTEM_INTERFACE_VER_TYPE QnnSystemInterface_ImplementationV1_15_t
#define QNN_SYSTEM_INTERFACE_VER_NAME v1_15

typedef struct {
    uint32_t backendId;
    const char* providerName;
    Qnn_Version_t systemApiVersion;

    union {
        QNN_SYSTEM_INTERFACE_VER_TYPE QNN_SYSTEM_INTERFACE_VER_NAME;
    };
} QnnSystemInterface_t;

#define GRAPH_HEAD                                                                                                     \
    const char* graphName;                                                                                             \
    uint32_t numGraphInputs;                                                                                           \
    Qnn_Tensor_t* graphInputs;                                                                                         \
    uint32_t numGraphOutputs;                                                                                          \
    Qnn_Tensor_t* graphOutputs;

typedef struct {
    GRAPH_HEAD
} QnnSystemContext_GraphInfoV1_t;

typedef struct {
    GRAPH_HEAD
    uint32_t numUpdateableTensors;
    Qnn_Tensor_t* updateableTensors;
} QnnSystemContext_GraphInfoV2_t;

typedef struct {
    GRAPH_HEAD
    uint32_t numUpdateableTensors;
    Qnn_Tensor_t* updateableTensors;
    uint32_t graphBlobInfoSize;
    void* graphBlobInfo;
    uint32_t startOpIndex, endOpIndex;
} QnnSystemContext_GraphInfoV3_t;

typedef struct {
    uint32_t version;

    union {
        QnnSystemContext_GraphInfoV1_t graphInfoV1;
        QnnSystemContext_GraphInfoV2_t graphInfoV2;
        QnnSystemContext_GraphInfoV3_t graphInfoV3;
    };
} QnnSystemContext_GraphInfo_t;

#define BINARY_HEAD                                                                                                    \
    uint32_t backendId;                                                                                                \
    const char* buildId;                                                                                               \
    Qnn_Version_t coreApiVersion;                                                                                      \
    Qnn_Version_t backendApiVersion;                                                                                   \
    const char* socVersion;
#define BINARY_GRAPHS                                                                                                  \
    uint64_t contextBlobSize;                                                                                          \
    uint32_t numContextTensors;                                                                                        \
    Qnn_Tensor_t* contextTensors;                                                                                      \
    uint32_t numGraphs;                                                                                                \
    QnnSystemContext_GraphInfo_t* graphs;

typedef struct {
    BINARY_HEAD
    Qnn_Version_t hwInfoBlobVersion;
    Qnn_Version_t contextBlobVersion;
    uint32_t hwInfoBlobSize;
    void* hwInfoBlob;
    BINARY_GRAPHS
} QnnSystemContext_BinaryInfoV1_t;

typedef struct {
    BINARY_HEAD
    Qnn_Version_t hwInfoBlobVersion;
    Qnn_Version_t contextBlobVersion;
    uint32_t hwInfoBlobSize;
    void* hwInfoBlob;
    BINARY_GRAPHS
    void* platformInfo;
} QnnSystemContext_BinaryInfoV2_t;

typedef struct {
    BINARY_HEAD
    Qnn_Version_t contextBlobVersion;
    BINARY_GRAPHS
    void* platformInfo;
    uint32_t contextMetadataSize;
    void* contextMetadata;
    uint32_t socModel;
} QnnSystemContext_BinaryInfoV3_t;

typedef struct {
    uint32_t version;

    union {
        QnnSystemContext_BinaryInfoV1_t contextBinaryInfoV1;
        QnnSystemContext_BinaryInfoV2_t contextBinaryInfoV2;
        QnnSystemContext_BinaryInfoV3_t contextBinaryInfoV3;
    };
} QnnSystemContext_BinaryInfo_t;
