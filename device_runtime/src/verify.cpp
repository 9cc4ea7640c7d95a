#include "verify.h"

#include "qnn_abi.h"
#include "sha256.h"

#include <sstream>

namespace snapgate {
namespace {

using qnn::TensorInfo;

std::uint32_t qnn_data_type(DType dtype) noexcept {
    switch (dtype) {
    case DType::kInt32:
        return qnn::abi::kInt32;
    case DType::kFloat16:
        return qnn::abi::kFloat16;
    case DType::kFloat32:
        return qnn::abi::kFloat32;
    case DType::kUFixed8:
        return qnn::abi::kUFixed8;
    case DType::kUFixed16:
        return qnn::abi::kUFixed16;
    case DType::kSFixed8:
        return qnn::abi::kSFixed8;
    case DType::kSFixed16:
        return qnn::abi::kSFixed16;
    }
    return 0;
}

std::string data_type_text(std::uint32_t data_type) {
    for (const DType dtype : {DType::kInt32, DType::kFloat16, DType::kFloat32, DType::kUFixed8, DType::kUFixed16,
                              DType::kSFixed8, DType::kSFixed16}) {
        if (qnn_data_type(dtype) == data_type) {
            return name_of(dtype);
        }
    }
    std::ostringstream text;
    text << "QNN data type 0x" << std::hex << data_type;
    return text.str();
}

std::string encoding_text(double scale, std::int64_t zero_point) {
    std::ostringstream text;
    text.precision(9);
    text << "scale " << scale << " zero point " << zero_point;
    return text.str();
}

Fault tensor_fault(const std::string& where, const char* what, std::string found, std::string expected) {
    return Fault{
        ExitCode::kTensorMismatch,
        where,
        what,
        std::move(found),
        std::move(expected),
        "the binary and the manifest are not of one preparation: prepare and push the artifact again",
    };
}

Status verify_tensor(const std::string& where, const TensorInfo& found, const TensorSpec& expected,
                     qnn::abi::TensorType type) {
    if (found.type != type) {
        return tensor_fault(where, "wrong tensor type", std::to_string(found.type), std::to_string(type));
    }
    if (found.data_format != 0) {
        return tensor_fault(where, "wrong data format", std::to_string(found.data_format), "0 (dense)");
    }
    if (found.data_type != qnn_data_type(expected.dtype)) {
        return tensor_fault(where, "wrong dtype", data_type_text(found.data_type), name_of(expected.dtype));
    }
    if (found.dimensions != expected.shape) { // and with it rank and byte size
        return tensor_fault(where, "wrong dimensions", shape_text(found.dimensions), shape_text(expected.shape));
    }
    if (is_fixed(expected.dtype)) {
        const std::string wanted = encoding_text(*expected.scale, *expected.zero_point);
        if (!found.has_scale_offset) {
            return tensor_fault(where, "wrong encoding", "no scale and offset", wanted);
        }
        const std::int64_t zero_point = -static_cast<std::int64_t>(found.offset);
        if (static_cast<float>(*expected.scale) != found.scale || zero_point != *expected.zero_point) {
            return tensor_fault(where, "wrong encoding", encoding_text(static_cast<double>(found.scale), zero_point),
                                wanted);
        }
    }
    return {};
}

Status verify_tensors(const std::string& graph, const std::vector<TensorInfo>& found,
                      const std::vector<TensorSpec>& expected, qnn::abi::TensorType type) {
    for (const TensorSpec& spec : expected) {
        const TensorInfo* match = nullptr;
        for (const TensorInfo& info : found) {
            if (info.name == spec.name) {
                match = &info;
            }
        }
        const std::string where = graph + "/" + spec.name;
        if (match == nullptr) {
            return tensor_fault(where, "the binary has no such tensor", "nothing", shape_text(spec.shape));
        }
        SNAPGATE_TRY(verify_tensor(where, *match, spec, type));
    }
    if (found.size() != expected.size()) {
        return tensor_fault(graph, type == qnn::abi::kAppWrite ? "wrong number of inputs" : "wrong number of outputs",
                            std::to_string(found.size()), std::to_string(expected.size()));
    }
    return {};
}

} // namespace

Status verify_content(const std::string& path, Span<const std::byte> content, std::optional<std::uint64_t> n_bytes,
                      const std::string& sha256) {
    const auto damaged = [&path](const char* what, std::string found, std::string expected) {
        return Fault{
            ExitCode::kHashMismatch, path, what, std::move(found), std::move(expected), "push the artifact again",
        };
    };
    if (n_bytes && content.size() != *n_bytes) {
        return damaged("wrong file size", std::to_string(content.size()) + " bytes",
                       std::to_string(*n_bytes) + " bytes");
    }
    const std::string found = sha256_hex(content);
    if (found != sha256) {
        return damaged("wrong sha256", found, sha256);
    }
    return {};
}

Status verify_target(const std::string& path, const qnn::BinaryInfo& info, const JobModel& model) {
    const auto wrong = [&path](const char* what, std::string found, std::string expected) {
        return Fault{
            ExitCode::kArchMismatch,
            path,
            what,
            std::move(found),
            std::move(expected),
            "prepare the artifact for the SoC of this phone",
        };
    };
    const std::string arch = "v" + std::to_string(model.htp_arch);
    if (!info.dsp_arch) {
        return wrong("the binary does not say for which HTP arch it was compiled", "nothing", arch);
    }
    if (*info.dsp_arch != model.htp_arch) {
        return wrong("compiled for another HTP arch", "v" + std::to_string(*info.dsp_arch), arch);
    }
    if (info.soc_number.value_or(0) != model.soc_number) {
        return wrong("compiled for another SoC", "soc " + std::to_string(info.soc_number.value_or(0)),
                     "soc " + std::to_string(model.soc_number));
    }
    return {};
}

Result<const qnn::GraphInfo*> verify_graph(const std::string& path, const qnn::BinaryInfo& info,
                                           const GraphSpec& graph) {
    std::string names;
    for (const qnn::GraphInfo& candidate : info.graphs) {
        if (candidate.name == graph.name) {
            SNAPGATE_TRY(verify_tensors(graph.name, candidate.inputs, graph.inputs, qnn::abi::kAppWrite));
            SNAPGATE_TRY(verify_tensors(graph.name, candidate.outputs, graph.outputs, qnn::abi::kAppRead));
            return &candidate;
        }
        names += (names.empty() ? "" : ", ") + candidate.name;
    }
    return tensor_fault(path, "the binary has no such graph", names, graph.name);
}

} // namespace snapgate
