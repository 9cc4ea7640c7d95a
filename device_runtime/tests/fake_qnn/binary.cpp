#include "binary.h"

#include <nlohmann/json.hpp>

namespace standin {
namespace {

BinaryTensor parse_tensor(const nlohmann::json& json) {
    BinaryTensor tensor;
    tensor.id = json.at("id").get<std::uint32_t>();
    tensor.name = json.at("name").get<std::string>();
    tensor.data_type = json.at("data_type").get<std::uint32_t>();
    tensor.dims = json.at("dims").get<std::vector<std::uint32_t>>();
    tensor.tensor_version = json.value("version", 2U);
    if (json.contains("scale")) {
        tensor.quantized = true;
        tensor.scale = json.at("scale").get<float>();
        tensor.offset = json.at("offset").get<std::int32_t>();
    }
    return tensor;
}

std::vector<BinaryTensor> parse_tensors(const nlohmann::json& json) {
    std::vector<BinaryTensor> tensors;
    for (const auto& entry : json) {
        tensors.push_back(parse_tensor(entry));
    }
    return tensors;
}

} // namespace

std::size_t BinaryTensor::element_bytes() const {
    switch (data_type) {
    case snapgate::qnn::abi::kUFixed8:
    case snapgate::qnn::abi::kSFixed8:
        return 1;
    case snapgate::qnn::abi::kInt32:
    case snapgate::qnn::abi::kFloat32:
        return 4;
    default:
        return 2;
    }
}

std::size_t BinaryTensor::n_bytes() const {
    std::size_t product = element_bytes();
    for (const std::uint32_t extent : dims) {
        product *= extent;
    }
    return product;
}

std::unique_ptr<Binary> parse_binary(const void* bytes, std::uint64_t size) {
    const auto* text = static_cast<const char*>(bytes);
    const auto json = nlohmann::json::parse(text, text + size, nullptr, false);
    if (!json.is_object()) {
        return nullptr;
    }
    auto binary = std::make_unique<Binary>();
    binary->info_version = json.at("info_version").get<std::uint32_t>();
    binary->dsp_arch = json.at("dsp_arch").get<std::uint32_t>();
    binary->soc_number = json.at("soc_number").get<std::uint32_t>();
    binary->build_id = json.at("build_id").get<std::string>();
    binary->masked_raw = json.at("masked_raw").get<std::uint32_t>();
    for (const auto& entry : json.at("graphs")) {
        binary->graphs.push_back({entry.at("name").get<std::string>(), entry.at("n_tokens").get<std::uint32_t>(),
                                  parse_tensors(entry.at("inputs")), parse_tensors(entry.at("outputs"))});
    }
    return binary;
}

} // namespace standin
