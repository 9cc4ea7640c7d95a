#include "model.h"

#include <cstring>
#include <stdexcept>

namespace standin {
namespace {

// A tensor of the graph with its memory, read and written element by element.
struct View {
    const BinaryTensor* tensor = nullptr;
    std::byte* data = nullptr;

    std::uint32_t get(std::size_t index) const {
        std::uint32_t raw = 0;
        std::memcpy(&raw, data + index * tensor->element_bytes(), tensor->element_bytes());
        return raw;
    }

    void set(std::size_t index, std::uint32_t raw) const {
        std::memcpy(data + index * tensor->element_bytes(), &raw, tensor->element_bytes());
    }

    // The raw element that stands for 0.
    std::uint32_t zero() const { return tensor->quantized ? static_cast<std::uint32_t>(-tensor->offset) : 0; }
};

View find(const std::vector<BinaryTensor>& tensors, const Memory& memory, const std::string& name) {
    for (const BinaryTensor& tensor : tensors) {
        if (tensor.name == name) {
            return {&tensor, memory.at(name)};
        }
    }
    throw std::out_of_range(name);
}

bool has(const std::vector<BinaryTensor>& tensors, const std::string& name) {
    for (const BinaryTensor& tensor : tensors) {
        if (tensor.name == name) {
            return true;
        }
    }
    return false;
}

struct Layer {
    std::size_t number;
    View past_keys, past_values, keys, values;
};

} // namespace

std::string compute(const Binary& binary, const BinaryGraph& graph, const Memory& memory, bool nan_logits) {
    const bool is_first = has(graph.inputs, "input_ids");
    const bool is_last = has(graph.outputs, "logits");
    const View ids = is_first ? find(graph.inputs, memory, "input_ids") : find(graph.inputs, memory, "hidden");
    const std::size_t id_stride = is_first ? 1 : 2;
    const View mask = find(graph.inputs, memory, "attention_mask");
    const View cos = find(graph.inputs, memory, "position_ids_cos");
    const View sin = find(graph.inputs, memory, "position_ids_sin");
    const View result = find(graph.outputs, memory, is_last ? "logits" : "hidden");
    const std::size_t n = graph.n_tokens;
    const std::size_t context = mask.tensor->dims[3];
    const std::size_t past = context - n;
    const std::size_t pairs = cos.tensor->dims[3];
    const std::size_t vocabulary = is_last ? result.tensor->dims[2] : 0;
    std::vector<Layer> layers;
    for (std::size_t i = 0; i < 64; ++i) {
        if (!has(graph.inputs, "past_key_" + std::to_string(i) + "_in")) {
            continue;
        }
        const std::string key = "past_key_" + std::to_string(i);
        const std::string value = "past_value_" + std::to_string(i);
        layers.push_back({i, find(graph.inputs, memory, key + "_in"), find(graph.inputs, memory, value + "_in"),
                          find(graph.outputs, memory, key + "_out"), find(graph.outputs, memory, value + "_out")});
    }
    const std::size_t heads = layers[0].keys.tensor->dims[0];
    const std::size_t dim = layers[0].keys.tensor->dims[2];

    for (std::size_t row = 0; row < n; ++row) {
        const std::uint32_t id = ids.get(row * id_stride);
        if (is_last && id >= vocabulary) {
            return "token id " + std::to_string(id) + " in row " + std::to_string(row);
        }
        const std::size_t c = cos.get(row * pairs);
        const std::size_t s = sin.get(row * pairs);
        for (const Layer& layer : layers) {
            for (std::size_t head = 0; head < heads; ++head) {
                for (std::size_t d = 0; d < dim; ++d) {
                    const std::size_t key = (3 * id + 5 * c + 7 * head + 11 * d + 13 * layer.number + 1) % 251;
                    const std::size_t value = (2 * id + 17 * s + 19 * head + 23 * d + 29 * layer.number + 2) % 241;
                    layer.keys.set((head * dim + d) * n + row, static_cast<std::uint32_t>(key));
                    layer.values.set((head * n + row) * dim + d, static_cast<std::uint32_t>(value));
                }
            }
        }
    }
    for (std::size_t row = 0; row < n; ++row) {
        std::uint64_t sum = is_first ? 0 : ids.get(row * id_stride + 1);
        for (std::size_t column = 0; column < context; ++column) {
            const std::uint32_t raw = mask.get(row * context + column);
            const bool visible = raw == mask.zero();
            if (!visible && raw != binary.masked_raw) {
                return "mask element " + std::to_string(raw) + " at row " + std::to_string(row) + " column " +
                       std::to_string(column);
            }
            for (const Layer& layer : layers) {
                for (std::size_t head = 0; head < heads; ++head) {
                    for (std::size_t d = 0; d < dim; ++d) {
                        const bool is_past = column < past;
                        const std::size_t own = column - past;
                        const std::uint64_t key = is_past ? layer.past_keys.get((head * dim + d) * past + column)
                                                          : layer.keys.get((head * dim + d) * n + own);
                        const std::uint64_t value = is_past ? layer.past_values.get((head * past + column) * dim + d)
                                                            : layer.values.get((head * n + own) * dim + d);
                        if (visible) {
                            sum += key * value;
                        } else if (is_past && (key != layer.past_keys.zero() || value != layer.past_values.zero())) {
                            return "no padding in cache column " + std::to_string(column);
                        }
                    }
                }
            }
        }
        sum %= 65521;
        if (!is_last) {
            result.set(row * 2, ids.get(row * id_stride));
            result.set(row * 2 + 1, static_cast<std::uint32_t>(sum));
        }
        for (std::size_t x = 0; x < vocabulary; ++x) {
            const std::uint64_t logit = ((sum + 1) * (x + 1) * 31) % 31744;
            result.set(row * vocabulary + x, nan_logits ? 0x7E00 : static_cast<std::uint32_t>(logit));
        }
    }
    return "";
}

} // namespace standin
