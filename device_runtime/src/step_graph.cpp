#include "step_graph.h"

#include "progress.h"
#include "qnn_codes.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace snapgate {
namespace {

namespace abi = qnn::abi;

abi::Tensor describe(const qnn::TensorInfo& info) noexcept {
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
    tensor.sparse_layout = abi::kSparseLayoutNone;
    return tensor;
}

// The memory of each tensor of a step, by the tensor's name: parts of one block, and of the cache.
class Layout {
  public:
    // find_tensors has kept every tensor below 4 GiB, and there are few: 64 bits are enough.
    void add(const TensorSpec& spec) {
        offsets_[spec.name] = n_bytes_;
        n_bytes_ += round_up_to_alignment(spec.n_bytes().value_or(0));
    }

    std::uint64_t n_bytes() const noexcept { return n_bytes_; }

    void place(const AlignedBuffer& block) {
        for (const auto& [name, offset] : offsets_) {
            places_[name] = {&block, block.data() + offset};
        }
    }

    void bind(const TensorSpec& spec, const AlignedBuffer& block, std::byte* data) {
        places_[spec.name] = {&block, data};
    }

    const qnn::Place& operator[](const std::string& name) const { return places_.at(name); }

  private:
    std::map<std::string, std::uint64_t> offsets_;
    std::map<std::string, qnn::Place> places_;
    std::uint64_t n_bytes_ = 0;
};

// One QNN tensor per entry of `infos`, in that order. find_tensors has checked that every size fits 32 bits.
Result<std::vector<abi::Tensor>> bind_tensors(const LoadedGraph& graph, const std::vector<qnn::TensorInfo>& infos,
                                              const std::vector<TensorSpec>& specs, const Layout& layout,
                                              const MemorySource& source) {
    std::map<std::string, std::uint32_t> sizes;
    for (const TensorSpec& spec : specs) {
        sizes[spec.name] = static_cast<std::uint32_t>(spec.n_bytes().value_or(0));
    }
    std::vector<abi::Tensor> tensors;
    tensors.reserve(infos.size());
    for (const qnn::TensorInfo& info : infos) {
        abi::Tensor tensor = describe(info);
        const qnn::Place& place = layout[info.name];
        if (source.rpc != nullptr) {
            auto handle = source.registrations->add(graph.context, graph.spec->name, info, place);
            if (!handle) {
                return std::move(handle).fault();
            }
            tensor.mem_type = abi::kMemHandle;
            tensor.mem_handle = *handle;
        } else {
            tensor.mem_type = abi::kMemRaw;
            tensor.client_buffer = {place.data, sizes.at(info.name)};
        }
        tensors.push_back(tensor);
    }
    return tensors;
}

} // namespace

Result<StepGraph> StepGraph::create(const abi::CoreTable& table, const std::vector<LoadedGraph>& graphs,
                                    const JobModel& model, const RopeReals& rope, const KvCache& cache,
                                    const MemorySource& source) {
    Shards specs;
    for (const LoadedGraph& loaded : graphs) {
        specs.push_back(loaded.spec);
    }
    auto tensors = find_tensors(specs, model);
    if (!tensors) {
        return std::move(tensors).fault();
    }
    const GraphSpec& spec = *specs[0];
    auto cos_table = RopeTable::create(rope.cos, encoding_of(*tensors->cos), model.head_dim / 2);
    if (!cos_table) {
        return std::move(cos_table).fault();
    }
    auto sin_table = RopeTable::create(rope.sin, encoding_of(*tensors->sin), model.head_dim / 2);
    if (!sin_table) {
        return std::move(sin_table).fault();
    }
    Layout layout;
    for (const TensorSpec* tensor :
         {tensors->input_ids, tensors->attention_mask, tensors->cos, tensors->sin, tensors->logits}) {
        layout.add(*tensor);
    }
    for (std::size_t layer = 0; layer < model.n_layers; ++layer) {
        layout.add(*tensors->keys[layer]);
        layout.add(*tensors->values[layer]);
    }
    for (const TensorSpec* tap : tensors->taps) {
        layout.add(*tap);
    }
    auto memory = AlignedBuffer::allocate(layout.n_bytes(), ("tensors of " + spec.name).c_str(), source.rpc);
    if (!memory) {
        return std::move(memory).fault();
    }
    layout.place(*memory);
    const AttentionMask mask(layout[tensors->attention_mask->name].data, encoding_of(*tensors->attention_mask),
                             model.mask_value, spec.n_tokens, model.context_length);
    StepGraph graph(*std::move(memory), mask, *std::move(cos_table), *std::move(sin_table));
    layout.place(graph.memory_); // where the block is owned from now on, at the same address
    graph.table_ = &table;
    graph.name_ = spec.name;
    graph.n_tokens_ = spec.n_tokens;
    graph.past_columns_ = model.context_length - spec.n_tokens;
    graph.vocab_size_ = model.vocab_size;
    graph.logits_encoding_ = encoding_of(*tensors->logits);
    graph.ids_ = layout[tensors->input_ids->name].data;
    graph.cos_ = layout[tensors->cos->name].data;
    graph.sin_ = layout[tensors->sin->name].data;
    graph.logits_ = layout[tensors->logits->name].data;
    for (std::size_t layer = 0; layer < model.n_layers; ++layer) {
        layout.bind(*tensors->past_keys[layer], cache.pool(), cache.keys(layer));
        layout.bind(*tensors->past_values[layer], cache.pool(), cache.values(layer));
        graph.kv_outputs_.push_back(
            {layout[tensors->keys[layer]->name].data, layout[tensors->values[layer]->name].data});
    }
    graph.shards_.reserve(graphs.size());
    for (const LoadedGraph& loaded : graphs) {
        for (const TensorSpec& output : loaded.spec->outputs) {
            const std::byte* data = layout[output.name].data;
            graph.outputs_by_name_.insert({output.name, {&output, {data, output.n_bytes().value_or(0)}}});
        }
        graph.shards_.push_back({loaded.handle, loaded.spec->name, loaded.profile, *loaded.info, {}, {}});
        Shard& shard = graph.shards_.back();
        auto inputs = bind_tensors(loaded, shard.info.inputs, loaded.spec->inputs, layout, source);
        if (!inputs) {
            return std::move(inputs).fault();
        }
        auto outputs = bind_tensors(loaded, shard.info.outputs, loaded.spec->outputs, layout, source);
        if (!outputs) {
            return std::move(outputs).fault();
        }
        shard.inputs = *std::move(inputs);
        shard.outputs = *std::move(outputs);
    }
    return graph;
}

Status StepGraph::step(Span<const std::int32_t> tokens, std::uint32_t n_past) {
    constexpr std::int32_t kPaddingId = 0;
    auto* ids = reinterpret_cast<std::int32_t*>(ids_);
    std::copy(tokens.begin(), tokens.end(), ids);
    std::fill(ids + tokens.size(), ids + n_tokens_, kPaddingId);
    mask_.show_past(n_past);
    cos_table_.copy_rows(n_past, n_tokens_, cos_);
    sin_table_.copy_rows(n_past, n_tokens_, sin_);
    last_position_ = n_past;
    for (Shard& shard : shards_) {
        renew_deadline();
        const abi::ErrorCode code = table_->graph_execute(
            shard.graph, shard.inputs.data(), static_cast<std::uint32_t>(shard.inputs.size()), shard.outputs.data(),
            static_cast<std::uint32_t>(shard.outputs.size()), shard.profile, nullptr);
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
    return {logits_ + index * row_bytes, vocab_size_, logits_encoding_};
}

} // namespace snapgate
