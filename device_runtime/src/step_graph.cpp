#include "step_graph.h"

#include "qnn_codes.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace snapgate {
namespace {

namespace abi = qnn::abi;

// The memory of each tensor of a graph, by the tensor's name.
using Bindings = std::map<std::string, std::byte*>;

abi::Tensor describe(const qnn::TensorInfo& info, std::byte* data, std::uint32_t n_bytes) noexcept {
    abi::Tensor tensor{};
    tensor.version = info.version;
    tensor.id = info.id;
    tensor.name = info.name.c_str();
    tensor.type = info.type;
    tensor.data_format = info.data_format;
    tensor.data_type = info.data_type;
    tensor.quantize.definition = info.has_scale_offset ? abi::kQuantizationDefined : abi::kQuantizationUndefined;
    tensor.quantize.encoding = info.has_scale_offset ? abi::kEncodingScaleOffset : abi::kQuantizationUndefined;
    tensor.quantize.scale_offset = {info.scale, info.offset};
    tensor.rank = static_cast<std::uint32_t>(info.dimensions.size());
    tensor.dimensions = info.dimensions.data();
    tensor.mem_type = abi::kMemRaw;
    tensor.client_buffer = {data, n_bytes};
    tensor.sparse_layout = abi::kSparseLayoutNone;
    return tensor;
}

// One QNN tensor per entry of `infos`, in that order. find_tensors has checked that every size fits 32 bits.
std::vector<abi::Tensor> bind_tensors(const std::vector<qnn::TensorInfo>& infos, const std::vector<TensorSpec>& specs,
                                      const Bindings& bindings) {
    std::map<std::string, std::uint32_t> sizes;
    for (const TensorSpec& spec : specs) {
        sizes[spec.name] = static_cast<std::uint32_t>(spec.n_bytes().value_or(0));
    }
    std::vector<abi::Tensor> tensors;
    tensors.reserve(infos.size());
    for (const qnn::TensorInfo& info : infos) {
        tensors.push_back(describe(info, bindings.at(info.name), sizes.at(info.name)));
    }
    return tensors;
}

// Buffers of one graph, counted as they are made.
class Allocator {
  public:
    Status allocate(const TensorSpec& spec, AlignedBuffer& target) {
        auto buffer = AlignedBuffer::allocate(spec.n_bytes().value_or(0), spec.name.c_str());
        if (!buffer) {
            return std::move(buffer).fault();
        }
        target = *std::move(buffer);
        total_ += round_up_to_alignment(target.size());
        bindings_[spec.name] = target.data();
        return {};
    }

    void bind(const TensorSpec& spec, std::byte* data) { bindings_[spec.name] = data; }

    std::uint64_t total() const noexcept { return total_; }

    const Bindings& bindings() const noexcept { return bindings_; }

  private:
    Bindings bindings_;
    std::uint64_t total_ = 0;
};

} // namespace

Result<StepGraph> StepGraph::create(const abi::CoreTable& table, std::vector<LoadedGraph> graphs, const JobModel& model,
                                    const RopeReals& rope, const KvCache& cache) {
    Shards specs;
    for (const LoadedGraph& loaded : graphs) {
        specs.push_back(loaded.spec);
    }
    auto tensors = find_tensors(specs, model);
    if (!tensors) {
        return std::move(tensors).fault();
    }
    const GraphSpec& spec = *specs[0];
    auto mask = AttentionMask::create(encoding_of(*tensors->attention_mask), model.mask_value, spec.n_tokens,
                                      model.context_length);
    if (!mask) {
        return std::move(mask).fault();
    }
    auto cos_table = RopeTable::create(rope.cos, encoding_of(*tensors->cos), model.head_dim / 2);
    if (!cos_table) {
        return std::move(cos_table).fault();
    }
    auto sin_table = RopeTable::create(rope.sin, encoding_of(*tensors->sin), model.head_dim / 2);
    if (!sin_table) {
        return std::move(sin_table).fault();
    }
    StepGraph graph(*std::move(mask), *std::move(cos_table), *std::move(sin_table));
    graph.table_ = &table;
    graph.name_ = spec.name;
    graph.n_tokens_ = spec.n_tokens;
    graph.past_columns_ = model.context_length - spec.n_tokens;
    graph.vocab_size_ = model.vocab_size;
    graph.logits_encoding_ = encoding_of(*tensors->logits);

    Allocator memory;
    memory.bind(*tensors->attention_mask, graph.mask_.buffer().data());
    SNAPGATE_TRY(memory.allocate(*tensors->input_ids, graph.ids_));
    SNAPGATE_TRY(memory.allocate(*tensors->cos, graph.cos_));
    SNAPGATE_TRY(memory.allocate(*tensors->sin, graph.sin_));
    SNAPGATE_TRY(memory.allocate(*tensors->logits, graph.logits_));
    graph.keys_.resize(model.n_layers);
    graph.values_.resize(model.n_layers);
    for (std::size_t layer = 0; layer < model.n_layers; ++layer) {
        memory.bind(*tensors->past_keys[layer], cache.keys(layer));
        memory.bind(*tensors->past_values[layer], cache.values(layer));
        SNAPGATE_TRY(memory.allocate(*tensors->keys[layer], graph.keys_[layer]));
        SNAPGATE_TRY(memory.allocate(*tensors->values[layer], graph.values_[layer]));
        graph.kv_outputs_.push_back({graph.keys_[layer].data(), graph.values_[layer].data()});
    }
    graph.taps_.resize(tensors->taps.size());
    for (std::size_t i = 0; i < tensors->taps.size(); ++i) {
        SNAPGATE_TRY(memory.allocate(*tensors->taps[i], graph.taps_[i]));
    }
    graph.io_bytes_ = memory.total() + round_up_to_alignment(graph.mask_.buffer().size());
    graph.shards_.reserve(graphs.size());
    for (LoadedGraph& loaded : graphs) {
        for (const TensorSpec& output : loaded.spec->outputs) {
            const std::byte* data = memory.bindings().at(output.name);
            graph.outputs_by_name_.insert({output.name, {&output, {data, output.n_bytes().value_or(0)}}});
        }
        graph.shards_.push_back({loaded.handle, loaded.spec->name, std::move(loaded.profile), *loaded.info, {}, {}});
        Shard& shard = graph.shards_.back();
        shard.inputs = bind_tensors(shard.info.inputs, loaded.spec->inputs, memory.bindings());
        shard.outputs = bind_tensors(shard.info.outputs, loaded.spec->outputs, memory.bindings());
    }
    return graph;
}

Status StepGraph::step(Span<const std::int32_t> tokens, std::uint32_t n_past) {
    constexpr std::int32_t kPaddingId = 0;
    auto* ids = reinterpret_cast<std::int32_t*>(ids_.data());
    std::copy(tokens.begin(), tokens.end(), ids);
    std::fill(ids + tokens.size(), ids + n_tokens_, kPaddingId);
    mask_.show_past(n_past);
    cos_table_.copy_rows(n_past, n_tokens_, cos_.data());
    sin_table_.copy_rows(n_past, n_tokens_, sin_.data());
    last_position_ = n_past;
    for (Shard& shard : shards_) {
        const abi::ErrorCode code = table_->graph_execute(
            shard.graph, shard.inputs.data(), static_cast<std::uint32_t>(shard.inputs.size()), shard.outputs.data(),
            static_cast<std::uint32_t>(shard.outputs.size()), shard.profile.get(), nullptr);
        if (qnn::error_number(code) != 0) {
            return qnn::call_fault(ExitCode::kExecuteFailed, shard.name + " at position " + std::to_string(n_past),
                                   "graphExecute", code, "look at the first error above, then run the job once more");
        }
    }
    return {};
}

std::size_t StepGraph::n_tensors() const noexcept {
    std::size_t n = 0;
    for (const Shard& shard : shards_) {
        n += shard.inputs.size() + shard.outputs.size();
    }
    return n;
}

std::vector<ProfileRecord> StepGraph::read_profiles() const {
    std::vector<ProfileRecord> records;
    for (const Shard& shard : shards_) {
        if (shard.profile != nullptr) {
            ProfileRecord record;
            record.graph = shard.name;
            record.position = last_position_;
            record.events = qnn::read_events(*table_, shard.profile);
            records.push_back(std::move(record));
        }
    }
    return records;
}

std::optional<GraphOutput> StepGraph::output(const std::string& name) const {
    const auto found = outputs_by_name_.find(name);
    return found == outputs_by_name_.end() ? std::nullopt : std::optional<GraphOutput>(found->second);
}

LogitsRow StepGraph::logits(std::uint32_t index) const noexcept {
    const std::size_t row_bytes = vocab_size_ * logits_encoding_.element_bytes();
    return {logits_.data() + index * row_bytes, vocab_size_, logits_encoding_};
}

} // namespace snapgate
