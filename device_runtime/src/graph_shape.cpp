#include "graph_shape.h"

#include <map>
#include <set>
#include <sstream>

namespace snapgate {
namespace {

using Shape = std::vector<std::uint32_t>;

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

// The tensors of one side of all shards, taken out one by one; what is left at the end is for somebody else.
class TensorTaker {
  public:
    struct Entry {
        const TensorSpec* tensor = nullptr;
        std::string graph;
    };

    void add(const std::string& graph, const TensorSpec& tensor) { by_name_[tensor.name] = {&tensor, graph}; }

    // Null when there is no such tensor.
    const Entry* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &found->second;
    }

    Result<const TensorSpec*> take(const std::string& graph, const std::string& name, const Shape& shape) {
        const auto found = by_name_.find(name);
        if (found == by_name_.end()) {
            return tensor_fault(graph, name, "the graph has no such tensor", "nothing", shape_text(shape));
        }
        const Entry entry = found->second;
        by_name_.erase(found);
        if (entry.tensor->shape != shape) {
            return tensor_fault(entry.graph, name, "wrong shape", shape_text(entry.tensor->shape), shape_text(shape));
        }
        SNAPGATE_TRY(check_size(entry));
        return entry.tensor;
    }

    static Status check_size(const Entry& entry) {
        const auto n_bytes = entry.tensor->n_bytes();
        if (!n_bytes || !checked_narrow<std::uint32_t>(*n_bytes)) {
            return tensor_fault(entry.graph, entry.tensor->name, "the tensor is too large",
                                shape_text(entry.tensor->shape), "less than 4 GiB");
        }
        return {};
    }

    // What is left, in the order of the names.
    std::vector<Entry> rest() const {
        std::vector<Entry> rest;
        for (const auto& [name, entry] : by_name_) {
            rest.push_back(entry);
        }
        return rest;
    }

  private:
    std::map<std::string, Entry> by_name_;
};

Status take_into(TensorTaker& taker, const std::string& graph, const std::string& name, const Shape& shape,
                 const TensorSpec*& target) {
    auto tensor = taker.take(graph, name, shape);
    if (!tensor) {
        return std::move(tensor).fault();
    }
    target = *tensor;
    return {};
}

Status check_dtype(const std::string& graph, const TensorSpec& tensor, bool is_ids) {
    if ((tensor.dtype == DType::kInt32) != is_ids) {
        return tensor_fault(graph, tensor.name, "wrong dtype", name_of(tensor.dtype),
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

bool alike(const TensorSpec& a, const TensorSpec& b) noexcept {
    return a.dtype == b.dtype && a.shape == b.shape && a.scale == b.scale && a.zero_point == b.zero_point;
}

std::string description(const TensorSpec& tensor) { return encoding_text(tensor) + " " + shape_text(tensor.shape); }

Status check_alike(const std::string& graph, const TensorSpec& found, const TensorSpec& expected) {
    if (!alike(found, expected)) {
        return tensor_fault(graph, found.name, "the shards disagree about a tensor", description(found),
                            description(expected));
    }
    return {};
}

bool is_cache(const std::string& name) noexcept { return name.rfind("past_", 0) == 0; }

// Each shard's own inputs once; one that several shards take must be the same for all, and no cache.
Status collect(const Shards& shards, TensorTaker& inputs, TensorTaker& outputs) {
    for (const GraphSpec* shard : shards) {
        for (const auto* side : {&shard->inputs, &shard->outputs}) {
            std::set<std::string> names;
            for (const TensorSpec& tensor : *side) {
                if (!names.insert(tensor.name).second) {
                    return tensor_fault(shard->name, tensor.name, "two tensors have the same name", "a repeated name",
                                        "each name once");
                }
            }
        }
        for (const TensorSpec& tensor : shard->inputs) {
            const TensorTaker::Entry* handed_on = outputs.find(tensor.name);
            const TensorTaker::Entry* first = inputs.find(tensor.name);
            if (first != nullptr && is_cache(tensor.name)) {
                return tensor_fault(shard->name, tensor.name, "two shards have the same name for a tensor",
                                    "also in " + first->graph, "the cache of each layer in one shard");
            }
            if (handed_on != nullptr || first != nullptr) {
                SNAPGATE_TRY(check_alike(shard->name, tensor, *(handed_on != nullptr ? handed_on : first)->tensor));
            } else {
                inputs.add(shard->name, tensor);
            }
        }
        for (const TensorSpec& tensor : shard->outputs) {
            const TensorTaker::Entry* first = outputs.find(tensor.name);
            const TensorTaker::Entry* read = inputs.find(tensor.name);
            if (first != nullptr || read != nullptr) {
                return tensor_fault(shard->name, tensor.name, "two shards have the same name for a tensor",
                                    "also in " + (first != nullptr ? first : read)->graph,
                                    "outputs of names of their own, before the shard that reads them");
            }
            outputs.add(shard->name, tensor);
        }
    }
    return {};
}

} // namespace

std::vector<Shards> steps_of(const std::vector<JobContext>& contexts) {
    std::map<std::uint32_t, Shards> steps;
    for (const JobContext& context : contexts) {
        for (const GraphSpec& graph : context.graphs) {
            steps[graph.n_tokens].push_back(&graph);
        }
    }
    std::vector<Shards> result;
    for (auto& [n_tokens, shards] : steps) {
        result.push_back(std::move(shards));
    }
    return result;
}

Result<GraphTensors> find_tensors(const Shards& shards, const JobModel& model) {
    const std::string& name = shards[0]->name;
    const std::uint32_t n = shards[0]->n_tokens;
    const std::uint32_t past = model.context_length - n;
    const std::uint32_t heads = model.n_kv_heads;
    const std::uint32_t dim = model.head_dim;
    GraphTensors tensors;
    tensors.past_keys.resize(model.n_layers);
    tensors.past_values.resize(model.n_layers);
    tensors.keys.resize(model.n_layers);
    tensors.values.resize(model.n_layers);

    TensorTaker inputs;
    TensorTaker outputs;
    SNAPGATE_TRY(collect(shards, inputs, outputs));
    SNAPGATE_TRY(take_into(inputs, name, "input_ids", {1, n}, tensors.input_ids));
    SNAPGATE_TRY(take_into(inputs, name, "attention_mask", {1, 1, n, model.context_length}, tensors.attention_mask));
    SNAPGATE_TRY(take_into(inputs, name, "position_ids_cos", {1, 1, n, dim / 2}, tensors.cos));
    SNAPGATE_TRY(take_into(inputs, name, "position_ids_sin", {1, 1, n, dim / 2}, tensors.sin));
    SNAPGATE_TRY(take_into(outputs, shards.back()->name, "logits", {1, n, model.vocab_size}, tensors.logits));
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
        const std::string key = "past_key_" + std::to_string(layer);
        const std::string value = "past_value_" + std::to_string(layer);
        SNAPGATE_TRY(take_into(inputs, name, key + "_in", {heads, 1, dim, past}, tensors.past_keys[layer]));
        SNAPGATE_TRY(take_into(inputs, name, value + "_in", {heads, 1, past, dim}, tensors.past_values[layer]));
        SNAPGATE_TRY(take_into(outputs, name, key + "_out", {heads, 1, dim, n}, tensors.keys[layer]));
        SNAPGATE_TRY(take_into(outputs, name, value + "_out", {heads, 1, n, dim}, tensors.values[layer]));
    }
    for (const TensorTaker::Entry& tap : outputs.rest()) {
        SNAPGATE_TRY(TensorTaker::check_size(tap));
        tensors.taps.push_back(tap.tensor);
    }
    for (const TensorTaker::Entry& unknown : inputs.rest()) {
        return tensor_fault(unknown.graph, unknown.tensor->name, "a tensor this runner does not know",
                            shape_text(unknown.tensor->shape), "no such tensor");
    }
    SNAPGATE_TRY(check_dtype(name, *tensors.input_ids, true));
    for (const TensorSpec* tensor : {tensors.attention_mask, tensors.cos, tensors.sin, tensors.logits}) {
        SNAPGATE_TRY(check_dtype(name, *tensor, false));
    }
    for (const auto* layers : {&tensors.past_keys, &tensors.past_values, &tensors.keys, &tensors.values}) {
        for (const TensorSpec* tensor : *layers) {
            SNAPGATE_TRY(check_dtype(name, *tensor, false));
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
