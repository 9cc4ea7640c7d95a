#include "binary_info.h"

#include "qnn_codes.h"

#include <cstring>
#include <memory>

namespace snapgate::qnn {
namespace {

constexpr std::uint32_t kMaxGraphs = 256;
constexpr std::uint32_t kMaxTensors = 16384;
constexpr std::uint32_t kMaxRank = 8;
constexpr std::size_t kMaxText = 4096;

struct FreeSystemContext {
    const abi::SystemTable* table;

    void operator()(abi::Handle handle) const noexcept { table->context_free(handle); }
};

Fault implausible(const std::string& name, const char* what, std::string found, std::string expected) {
    return Fault{
        ExitCode::kContextFailed,
        name,
        what,
        std::move(found),
        std::move(expected),
        "push the artifact again; if that does not help, prepare it again",
    };
}

std::string bounded_text(const char* text) {
    return text == nullptr ? std::string() : std::string(text, strnlen(text, kMaxText));
}

Result<TensorInfo> copy_tensor(const abi::Tensor& tensor, const std::string& name) {
    TensorInfo copy;
    copy.version = tensor.version;
    if (tensor.version != 1 && tensor.version != 2) {
        return implausible(name, "a tensor description of unknown version", std::to_string(tensor.version), "1 or 2");
    }
    copy.id = tensor.id;
    copy.name = bounded_text(tensor.name);
    copy.type = tensor.type;
    copy.data_format = tensor.data_format;
    copy.data_type = tensor.data_type;
    if (tensor.rank > kMaxRank || (tensor.rank > 0 && tensor.dimensions == nullptr)) {
        return implausible(name, "a tensor of implausible rank", copy.name + ": " + std::to_string(tensor.rank),
                           "at most " + std::to_string(kMaxRank));
    }
    copy.dimensions.assign(tensor.dimensions, tensor.dimensions + tensor.rank);
    if (tensor.quantize.definition == abi::kQuantizationDefined &&
        tensor.quantize.encoding == abi::kEncodingScaleOffset) {
        copy.has_scale_offset = true;
        copy.scale = tensor.quantize.scale_offset.scale;
        copy.offset = tensor.quantize.scale_offset.offset;
    }
    return copy;
}

Result<std::vector<TensorInfo>> copy_tensors(const abi::Tensor* tensors, std::uint32_t n_tensors,
                                             const std::string& name) {
    if (n_tensors > kMaxTensors || (n_tensors > 0 && tensors == nullptr)) {
        return implausible(name, "an implausible number of tensors", std::to_string(n_tensors),
                           "at most " + std::to_string(kMaxTensors));
    }
    std::vector<TensorInfo> copies;
    copies.reserve(n_tensors);
    for (std::uint32_t i = 0; i < n_tensors; ++i) {
        auto copy = copy_tensor(tensors[i], name);
        if (!copy) {
            return std::move(copy).fault();
        }
        copies.push_back(*std::move(copy));
    }
    return copies;
}

Result<std::vector<GraphInfo>> copy_graphs(const abi::GraphInfo* graphs, std::uint32_t n_graphs,
                                           const std::string& name) {
    if (n_graphs == 0 || n_graphs > kMaxGraphs || graphs == nullptr) {
        return implausible(name, "an implausible number of graphs", std::to_string(n_graphs),
                           "1 to " + std::to_string(kMaxGraphs));
    }
    std::vector<GraphInfo> copies;
    for (std::uint32_t i = 0; i < n_graphs; ++i) {
        const abi::GraphInfo& graph = graphs[i];
        if (graph.version < 1 || graph.version > 3) { // also what a wrong array stride would look like
            return implausible(name, "a graph description of unknown version", std::to_string(graph.version),
                               "1, 2 or 3");
        }
        auto inputs = copy_tensors(graph.inputs, graph.n_inputs, name);
        if (!inputs) {
            return std::move(inputs).fault();
        }
        auto outputs = copy_tensors(graph.outputs, graph.n_outputs, name);
        if (!outputs) {
            return std::move(outputs).fault();
        }
        std::optional<std::uint32_t> vtcm_bytes;
        if (graph.version == 3 && graph.metadata != nullptr && graph.metadata_size >= sizeof(abi::HtpGraphMetadata)) {
            abi::HtpGraphMetadata metadata{};
            std::memcpy(&metadata, graph.metadata, sizeof metadata);
            if (metadata.version == 1) {
                vtcm_bytes = metadata.vtcm_bytes;
            }
        }
        copies.push_back({bounded_text(graph.name), *std::move(inputs), *std::move(outputs), vtcm_bytes});
    }
    return copies;
}

} // namespace

Result<BinaryInfo> copy_binary_info(const abi::BinaryInfo* info, const std::string& name) {
    if (info == nullptr || info->version < 1 || info->version > 3) {
        return implausible(name, "metadata of unknown version",
                           info == nullptr ? "none" : std::to_string(info->version), "1, 2 or 3");
    }
    BinaryInfo copy;
    const bool is_v3 = info->version == 3;
    auto graphs = is_v3 ? copy_graphs(info->v3.graphs, info->v3.n_graphs, name)
                        : copy_graphs(info->v1.graphs, info->v1.n_graphs, name);
    if (!graphs) {
        return std::move(graphs).fault();
    }
    copy.graphs = *std::move(graphs);
    copy.build_id = bounded_text(is_v3 ? info->v3.build_id : info->v1.build_id);
    copy.blob_version = version_text(is_v3 ? info->v3.context_blob : info->v1.context_blob);
    if (is_v3) {
        copy.soc_number = info->v3.soc_number;
        if (info->v3.metadata != nullptr && info->v3.metadata_size >= sizeof(abi::HtpContextMetadata)) {
            abi::HtpContextMetadata metadata{};
            std::memcpy(&metadata, info->v3.metadata, sizeof metadata);
            if (metadata.version == 1) {
                copy.dsp_arch = metadata.dsp_arch;
            }
        }
    }
    return copy;
}

Result<BinaryInfo> read_binary_info(const SystemLibrary& system, Span<const std::byte> binary,
                                    const std::string& name) {
    constexpr const char* kNextStep = "check that the libraries are at least as new as the compiler of the artifact";
    abi::Handle handle = nullptr;
    abi::ErrorCode code = system.table().context_create(&handle);
    if (error_number(code) != 0 || handle == nullptr) {
        return call_fault(ExitCode::kContextFailed, name, "systemContextCreate", code, kNextStep);
    }
    const std::unique_ptr<void, FreeSystemContext> context(handle, {&system.table()});
    const abi::BinaryInfo* info = nullptr;
    code = system.table().get_metadata(handle, binary.data(), binary.size(), &info);
    if (error_number(code) != 0) {
        return call_fault(ExitCode::kContextFailed, name, "systemContextGetMetaData", code, kNextStep);
    }
    return copy_binary_info(info, name);
}

} // namespace snapgate::qnn
