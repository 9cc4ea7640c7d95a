#include "graph_shape.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace snapgate {
namespace {

using Shape = std::vector<std::uint32_t>;
using TensorsByName = std::map<std::string, const TensorSpec*>;

Fault tensor_fault(const std::string& graph, const std::string& tensor, const char* what, std::string found,
                   std::string expected) {
    return Fault{
        ExitCode::kTensorMismatch,
        graph + "/" + tensor,
        what,
        std::move(found),
        std::move(expected),
        "prepare the artifact again and write the job from its manifest",
    };
}

// Takes tensors out of a graph one by one; what is left at the end should not be there.
class TensorTaker {
  public:
    TensorTaker(const std::string& graph, const std::vector<TensorSpec>& tensors) : graph_(graph) {
        for (const TensorSpec& tensor : tensors) {
            by_name_[tensor.name] = &tensor;
        }
        complete_ = by_name_.size() == tensors.size();
    }

    Result<const TensorSpec*> take(const std::string& name, const Shape& shape) {
        const auto found = by_name_.find(name);
        if (found == by_name_.end()) {
            return tensor_fault(graph_, name, "the graph has no such tensor", "nothing", shape_text(shape));
        }
        const TensorSpec* tensor = found->second;
        by_name_.erase(found);
        if (tensor->shape != shape) {
            return tensor_fault(graph_, name, "wrong shape", shape_text(tensor->shape), shape_text(shape));
        }
        const auto n_bytes = tensor->n_bytes();
        if (!n_bytes || !checked_narrow<std::uint32_t>(*n_bytes)) {
            return tensor_fault(graph_, name, "the tensor is too large", shape_text(shape), "less than 4 GiB");
        }
        return tensor;
    }

    // What is left, in the order of the names.
    std::vector<const TensorSpec*> take_rest() {
        std::vector<const TensorSpec*> rest;
        for (const auto& [name, tensor] : by_name_) {
            rest.push_back(tensor);
        }
        by_name_.clear();
        return rest;
    }

    Status finish() const {
        if (!complete_) {
            return tensor_fault(graph_, "", "two tensors have the same name", "a repeated name", "each name once");
        }
        if (!by_name_.empty()) {
            return tensor_fault(graph_, by_name_.begin()->first, "a tensor this runner does not know",
                                shape_text(by_name_.begin()->second->shape), "no such tensor");
        }
        return {};
    }

  private:
    const std::string& graph_;
    TensorsByName by_name_;
    bool complete_ = true;
};

Status take_into(TensorTaker& taker, const std::string& name, const Shape& shape, const TensorSpec*& target) {
    auto tensor = taker.take(name, shape);
    if (!tensor) {
        return std::move(tensor).fault();
    }
    target = *tensor;
    return {};
}

Status check_dtype(const GraphSpec& graph, const TensorSpec& tensor, bool is_ids) {
    if ((tensor.dtype == DType::kInt32) != is_ids) {
        return tensor_fault(graph.name, tensor.name, "wrong dtype", name_of(tensor.dtype),
                            is_ids ? "int32" : "a floating or fixed-point type");
    }
    return {};
}

std::string encoding_text(const TensorSpec& tensor) {
    std::ostringstream text;
    text.precision(9);
    text << name_of(tensor.dtype);
    if (tensor.scale && tensor.zero_point) {
        text << " scale " << *tensor.scale << " zero point " << *tensor.zero_point;
    }
    return text.str();
}

Status check_same_encoding(const TensorSpec& first, const TensorSpec& other) {
    if (first.dtype != other.dtype || first.scale != other.scale || first.zero_point != other.zero_point) {
        return tensor_fault("job", other.name, "the graphs disagree about an encoding", encoding_text(other),
                            encoding_text(first) + " (as " + first.name + ")");
    }
    return {};
}

} // namespace

Result<GraphTensors> find_tensors(const GraphSpec& graph, const JobModel& model) {
    const std::uint32_t n = graph.n_tokens;
    const std::uint32_t past = model.context_length - n;
    const std::uint32_t heads = model.n_kv_heads;
    const std::uint32_t dim = model.head_dim;
    GraphTensors tensors;
    tensors.past_keys.resize(model.n_layers);
    tensors.past_values.resize(model.n_layers);
    tensors.keys.resize(model.n_layers);
    tensors.values.resize(model.n_layers);

    TensorTaker inputs(graph.name, graph.inputs);
    TensorTaker outputs(graph.name, graph.outputs);
    SNAPGATE_TRY(take_into(inputs, "input_ids", {1, n}, tensors.input_ids));
    SNAPGATE_TRY(take_into(inputs, "attention_mask", {1, 1, n, model.context_length}, tensors.attention_mask));
    SNAPGATE_TRY(take_into(inputs, "position_ids_cos", {1, 1, n, dim / 2}, tensors.cos));
    SNAPGATE_TRY(take_into(inputs, "position_ids_sin", {1, 1, n, dim / 2}, tensors.sin));
    SNAPGATE_TRY(take_into(outputs, "logits", {1, n, model.vocab_size}, tensors.logits));
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
        const std::string key = "past_key_" + std::to_string(layer);
        const std::string value = "past_value_" + std::to_string(layer);
        SNAPGATE_TRY(take_into(inputs, key + "_in", {heads, 1, dim, past}, tensors.past_keys[layer]));
        SNAPGATE_TRY(take_into(inputs, value + "_in", {heads, 1, past, dim}, tensors.past_values[layer]));
        SNAPGATE_TRY(take_into(outputs, key + "_out", {heads, 1, dim, n}, tensors.keys[layer]));
        SNAPGATE_TRY(take_into(outputs, value + "_out", {heads, 1, n, dim}, tensors.values[layer]));
    }
    tensors.taps = outputs.take_rest();
    for (const TensorSpec* tap : tensors.taps) {
        const auto n_bytes = tap->n_bytes();
        if (!n_bytes || !checked_narrow<std::uint32_t>(*n_bytes)) {
            return tensor_fault(graph.name, tap->name, "the tensor is too large", shape_text(tap->shape),
                                "less than 4 GiB");
        }
    }
    SNAPGATE_TRY(inputs.finish());
    SNAPGATE_TRY(outputs.finish());
    for (const auto* side : {&graph.inputs, &graph.outputs}) {
        for (const TensorSpec& tensor : *side) {
            const bool is_tap = std::find(tensors.taps.begin(), tensors.taps.end(), &tensor) != tensors.taps.end();
            SNAPGATE_TRY(is_tap ? Status() : check_dtype(graph, tensor, &tensor == tensors.input_ids));
        }
    }
    return tensors;
}

Status check_shared_encodings(const std::vector<GraphTensors>& graphs) {
    for (const GraphTensors& graph : graphs) {
        SNAPGATE_TRY(check_same_encoding(*graphs[0].logits, *graph.logits));
        for (std::size_t layer = 0; layer < graph.keys.size(); ++layer) {
            SNAPGATE_TRY(check_same_encoding(*graphs[0].past_keys[layer], *graph.past_keys[layer]));
            SNAPGATE_TRY(check_same_encoding(*graphs[0].past_keys[layer], *graph.keys[layer]));
            SNAPGATE_TRY(check_same_encoding(*graphs[0].past_values[layer], *graph.past_values[layer]));
            SNAPGATE_TRY(check_same_encoding(*graphs[0].past_values[layer], *graph.values[layer]));
        }
    }
    return {};
}

} // namespace snapgate
