// What each tensor of an AR-N graph must look like for a given model, and whether the job's graphs agree with that.
#pragma once

#include "job.h"

#include <string>
#include <vector>

namespace snapgate {

// The tensors of one graph, in the order the rest of the program uses.
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
    std::vector<const TensorSpec*> taps;        // outputs of any other name and shape, which only a dump reads
};

// Finds every tensor by name; TENSOR_MISMATCH names one that is missing, an
// input too many, one of a wrong shape or of a wrong dtype.
// The result points into `graph`.
Result<GraphTensors> find_tensors(const GraphSpec& graph, const JobModel& model);

// Keys and values must keep one dtype, scale and zero point over all graphs: a cache written by one is read by
// another. So must logits: the rows of prefill and decode go to one file.
Status check_shared_encodings(const std::vector<GraphTensors>& graphs);

} // namespace snapgate
