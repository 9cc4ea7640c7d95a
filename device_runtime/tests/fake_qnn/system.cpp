// A stand-in for libQnnSystem.so: serves the metadata of the stand-in's binaries in the layouts of versions 1, 2 and
// 3.
#include "binary.h"
#include "injection.h"
#include "qnn_abi.h"

#include <deque>

namespace {

namespace abi = snapgate::qnn::abi;
using namespace standin;

// Owns everything a BinaryInfo points to, until the context is freed.
struct SystemContext {
    std::unique_ptr<Binary> binary;
    std::deque<std::vector<abi::Tensor>> tensors;
    std::vector<abi::GraphInfo> graphs;
    abi::HtpContextMetadata metadata{};
    abi::HtpGraphMetadata graph_metadata{1, 0, 0, 8U << 20, 3};
    abi::BinaryInfo info{};
};

std::vector<abi::Tensor> describe(const std::vector<BinaryTensor>& tensors, std::uint32_t type) {
    std::vector<abi::Tensor> described;
    for (const BinaryTensor& tensor : tensors) {
        abi::Tensor entry{};
        entry.version = tensor.tensor_version;
        entry.id = tensor.id;
        entry.name = tensor.name.c_str();
        entry.type = type;
        entry.data_type = tensor.data_type;
        entry.quantize.definition = tensor.quantized ? abi::kQuantizationDefined : abi::kQuantizationUndefined;
        entry.quantize.encoding = tensor.quantized ? abi::kEncodingScaleOffset : abi::kQuantizationUndefined;
        entry.quantize.scale_offset = {tensor.scale, tensor.offset};
        entry.rank = static_cast<std::uint32_t>(tensor.dims.size());
        entry.dimensions = tensor.dims.data();
        described.push_back(entry);
    }
    return described;
}

abi::ErrorCode context_create(abi::Handle* out) {
    if (const auto code = enter("systemContextCreate")) {
        return *code;
    }
    *out = new SystemContext();
    return 0;
}

template <typename Info>
void fill(Info& info, const SystemContext& context) {
    info.backend_id = abi::kHtpBackendId;
    info.build_id = context.binary->build_id.c_str();
    info.context_blob = {9, 8, 7};
    info.n_graphs = static_cast<std::uint32_t>(context.graphs.size());
    info.graphs = context.graphs.data();
}

abi::ErrorCode get_metadata(abi::Handle handle, const void* bytes, std::uint64_t size, const abi::BinaryInfo** out) {
    if (const auto code = enter("systemContextGetMetaData")) {
        return *code;
    }
    auto* context = static_cast<SystemContext*>(handle);
    context->binary = parse_binary(bytes, size);
    if (context->binary == nullptr) {
        return 30010;
    }
    const Binary& binary = *context->binary;
    for (const BinaryGraph& graph : binary.graphs) {
        abi::GraphInfo info{};
        info.version = binary.info_version;
        info.name = graph.name.c_str();
        context->tensors.push_back(describe(graph.inputs, abi::kAppWrite));
        info.inputs = context->tensors.back().data();
        info.n_inputs = static_cast<std::uint32_t>(graph.inputs.size());
        context->tensors.push_back(describe(graph.outputs, abi::kAppRead));
        info.outputs = context->tensors.back().data();
        info.n_outputs = static_cast<std::uint32_t>(graph.outputs.size());
        info.metadata = &context->graph_metadata;
        info.metadata_size = sizeof context->graph_metadata;
        context->graphs.push_back(info);
    }
    context->info.version = binary.info_version;
    if (binary.info_version == 3) {
        fill(context->info.v3, *context);
        context->metadata = {1, binary.dsp_arch};
        context->info.v3.metadata = &context->metadata;
        context->info.v3.metadata_size = sizeof context->metadata;
        context->info.v3.soc_number = binary.soc_number;
    } else {
        fill(context->info.v1, *context);
    }
    *out = &context->info;
    return 0;
}

abi::ErrorCode context_free(abi::Handle handle) {
    enter("systemContextFree");
    delete static_cast<SystemContext*>(handle);
    return 0;
}

} // namespace

extern "C" __attribute__((visibility("default"))) abi::ErrorCode
QnnSystemInterface_getProviders(const abi::SystemProvider*** providers, std::uint32_t* n_providers) {
    static abi::SystemProvider provider{};
    static const abi::SystemProvider* list[] = {&provider};
    provider.name = "STANDIN_SYSTEM";
    provider.version = version_from("FAKE_QNN_SYSTEM", {1, 15, 0});
    provider.table = {context_create, nullptr, is_null_slot("systemContextGetMetaData") ? nullptr : get_metadata,
                      context_free};
    *providers = list;
    *n_providers = 1;
    return 0;
}
