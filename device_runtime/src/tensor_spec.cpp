#include "tensor_spec.h"

#include <array>
#include <utility>

namespace snapgate {
namespace {

constexpr std::array<std::pair<DType, const char*>, 7> kDTypeNames = {{
    {DType::kInt32, "int32"},
    {DType::kFloat16, "float16"},
    {DType::kFloat32, "float32"},
    {DType::kUFixed8, "ufixed8"},
    {DType::kUFixed16, "ufixed16"},
    {DType::kSFixed8, "sfixed8"},
    {DType::kSFixed16, "sfixed16"},
}};

} // namespace

const char* name_of(DType dtype) noexcept {
    for (const auto& [known, name] : kDTypeNames) {
        if (known == dtype) {
            return name;
        }
    }
    return "unknown";
}

std::optional<DType> dtype_from_name(const std::string& name) noexcept {
    for (const auto& [dtype, known] : kDTypeNames) {
        if (name == known) {
            return dtype;
        }
    }
    return std::nullopt;
}

std::optional<std::uint64_t> TensorSpec::n_bytes() const noexcept {
    std::optional<std::uint64_t> product = bytes_of(dtype);
    for (const std::uint32_t extent : shape) {
        product = checked_multiply(*product, extent);
        if (!product) {
            return std::nullopt;
        }
    }
    return product;
}

std::string shape_text(const std::vector<std::uint32_t>& shape) {
    std::string text = "(";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + ")";
}

} // namespace snapgate
