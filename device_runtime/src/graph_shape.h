// What each tensor of an AR-N step must look like for a given model, and whether the job's graphs agree with that. A
// step is one graph, or the shards of one, which run in order: each has the cache of its own layers, mask and RoPE go
// to all that ask for them, and an output that has the name of an input of a later shard is handed on as it is.
#pragma once

#include "job.h"

#include <string>
#include <vector>

namespace snapgate {

using Shards = std::vector<const GraphSpec*>;

// The tensors of one step, in the order the rest of the program uses.
struct GraphTensors {
    const TensorSpec* input_ids = nullptr;      // int32 (1, N)
    const TensorSpec* attention_mask = nullptr; // (1, 1, N, CL)
    const TensorSpec* cos = nullptr;            // (1, 1, N, head_dim / 2)
    const TensorSpec* sin = nullptr;            // (1, 1, N, head_dim / 2)
    std::vector<const TensorSpec*> past_keys;   // per layer (n_kv_heads, 1, head_dim, CL - N)
    std::vector<const TensorSpec*> past_values; // per layer (n_kv_heads, 1, CL - N, head_dim)
    const TensorSpec* logits = nullptr;         // (1, N, vocab)
    std::vector<const TensorSpec*> keys;        // per layer (n_kv_heads, 1, head_dim, N)
    std::vector<const TensorSpec*> values;      // per layer (n_kv_heads, 1, N, head_dim)
    std::vector<const TensorSpec*> taps;        // outputs of any other name and shape: for a later shard, or a dump
};

// Finds every tensor by name; TENSOR_MISMATCH names one that is missing, one that two shards put out, an input that
// nothing fills, one of a wrong shape or of a wrong dtype, and a handed-on tensor whose two descriptions differ.
// The result points into the graphs.
Result<GraphTensors> find_tensors(const Shards& shards, const JobModel& model);

inline Result<GraphTensors> find_tensors(const GraphSpec& graph, const JobModel& model) {
    return find_tensors(Shards{&graph}, model);
}

// The job's steps, widest last: graphs of one `n_tokens` in the order in which the contexts list them.
std::vector<Shards> steps_of(const std::vector<JobContext>& contexts);

// Keys and values must keep one dtype, scale and zero point over all graphs: a cache written by one is read by
// another. So must logits: the rows of prefill and decode go to one file.
Status check_shared_encodings(const std::vector<GraphTensors>& graphs);

} // namespace snapgate
