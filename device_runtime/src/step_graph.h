// One AR-N step ready to execute: the QNN handles of its graph or shards, their tensors, and the buffers they are bound
// to. What a shard hands on lies in one buffer, bound as output of the one and input of the other.
#pragma once

#include "attention_mask.h"
#include "binary_info.h"
#include "graph_shape.h"
#include "job.h"
#include "kv_cache.h"
#include "logits.h"
#include "memory_registration.h"
#include "profile.h"
#include "qnn_abi.h"
#include "result.h"
#include "rope_table.h"
#include "span.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace snapgate {

// cos and sin of the whole context as float32 (context_length, head_dim / 2) each, borrowed from the rope file.
struct RopeReals {
    Span<const std::byte> cos;
    Span<const std::byte> sin;
};

// One output of a graph: what it is and where the last step wrote it.
struct GraphOutput {
    const TensorSpec* spec; // belongs to the job
    Span<const std::byte> bytes;
};

// A graph that was retrieved. `info` is what the binary says about it, already verified against `spec`.
struct LoadedGraph {
    qnn::abi::Handle handle = nullptr; // belongs to the context
    const GraphSpec* spec = nullptr;
    const qnn::GraphInfo* info = nullptr;
    qnn::abi::Handle context = nullptr; // in which memory is registered
    qnn::abi::Handle profile = nullptr; // borrowed; may be null
};

// Where a step's tensors are to lie: in memory of `rpc`, registered; both null: in plain memory.
struct MemorySource {
    const RpcMemory* rpc = nullptr;
    qnn::MemoryRegistrations* registrations = nullptr;
};

class StepGraph {
  public:
    // The graphs of one step, in order. The past inputs are bound to `cache`, which is of the same memory, must outlive
    // the step and stay where it is.
    static Result<StepGraph> create(const qnn::abi::CoreTable& table, const std::vector<LoadedGraph>& graphs,
                                    const JobModel& model, const RopeReals& rope, const KvCache& cache,
                                    const MemorySource& source);

    // Fills the inputs for `tokens` (at most n_tokens(); the rest of the step is padding with id 0) at position
    // `n_past`, and executes. EXECUTE_FAILED carries the QNN code. Allocates nothing on success.
    Status step(Span<const std::int32_t> tokens, std::uint32_t n_past);

    // Row `index` of the last step's logits.
    LogitsRow logits(std::uint32_t index) const noexcept;

    Span<const KvOutputs> kv_outputs() const noexcept { return kv_outputs_; }

    // Nothing when the graph has no such output. `spec` and the job it came from must still be there.
    std::optional<GraphOutput> output(const std::string& name) const;

    std::uint32_t n_tokens() const noexcept { return n_tokens_; }

    // Cache columns this graph reads.
    std::uint32_t past_columns() const noexcept { return past_columns_; }

    std::uint64_t io_bytes() const noexcept { return memory_.size(); }

    std::size_t n_tensors() const noexcept;

    // Of the last step, one for each graph that has a profile.
    std::vector<ProfileRecord> read_profiles() const;

    const std::string& name() const noexcept { return name_; }

  private:
    StepGraph(AlignedBuffer memory, AttentionMask mask, RopeTable cos_table, RopeTable sin_table)
        : memory_(std::move(memory)), mask_(mask), cos_table_(std::move(cos_table)), sin_table_(std::move(sin_table)) {}

    const qnn::abi::CoreTable* table_ = nullptr;
    std::string name_; // of the first graph
    std::uint32_t last_position_ = 0;
    std::uint32_t n_tokens_ = 0;
    std::uint32_t past_columns_ = 0;
    std::uint32_t vocab_size_ = 0;
    Encoding logits_encoding_;

    AlignedBuffer memory_; // of all that follows, but for the tables
    AttentionMask mask_;
    RopeTable cos_table_;
    RopeTable sin_table_;
    std::byte* ids_ = nullptr;
    std::byte* cos_ = nullptr;
    std::byte* sin_ = nullptr;
    std::byte* logits_ = nullptr;
    std::vector<KvOutputs> kv_outputs_;
    std::map<std::string, GraphOutput> outputs_by_name_;

    struct Shard {
        qnn::abi::Handle graph;
        std::string name;
        qnn::abi::Handle profile;
        qnn::GraphInfo info; // owns the names and dimensions that the tensors below point to
        std::vector<qnn::abi::Tensor> inputs;
        std::vector<qnn::abi::Tensor> outputs;
    };

    std::vector<Shard> shards_;
};

} // namespace snapgate
