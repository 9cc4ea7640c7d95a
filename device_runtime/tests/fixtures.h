// Small, complete descriptions that tests vary in one place.
#pragma once

#include "job.h"

#include <string>

namespace snapgate::fixtures {

// 1 layer, 1 KV head of dimension 2, vocabulary 10, context 8.
inline JobModel model() {
    JobModel model;
    model.n_layers = 1;
    model.n_kv_heads = 1;
    model.head_dim = 2;
    model.vocab_size = 10;
    model.context_length = 8;
    model.mask_value = -100;
    model.eos_ids = {9};
    model.soc_number = 57;
    model.htp_arch = 75;
    return model;
}

inline TensorSpec fixed(const std::string& name, DType dtype, std::vector<std::uint32_t> shape, double scale,
                        std::int32_t zero_point) {
    return {name, dtype, std::move(shape), scale, zero_point};
}

// An AR-N graph of model(), quantised as w8a16 with an 8-bit cache.
inline GraphSpec graph(std::uint32_t n) {
    const std::uint32_t past = 8 - n;
    GraphSpec graph;
    graph.name = "ar" + std::to_string(n);
    graph.n_tokens = n;
    graph.inputs = {{"input_ids", DType::kInt32, {1, n}, {}, {}},
                    fixed("attention_mask", DType::kUFixed16, {1, 1, n, 8}, 0.0015625, 65535),
                    fixed("position_ids_cos", DType::kUFixed16, {1, 1, n, 1}, 0.00003, 32768),
                    fixed("position_ids_sin", DType::kUFixed16, {1, 1, n, 1}, 0.00003, 32768),
                    fixed("past_key_0_in", DType::kUFixed8, {1, 1, 2, past}, 0.5, 128),
                    fixed("past_value_0_in", DType::kUFixed8, {1, 1, past, 2}, 0.25, 128)};
    graph.outputs = {fixed("logits", DType::kUFixed16, {1, n, 10}, 0.001, 30000),
                     fixed("past_key_0_out", DType::kUFixed8, {1, 1, 2, n}, 0.5, 128),
                     fixed("past_value_0_out", DType::kUFixed8, {1, 1, n, 2}, 0.25, 128)};
    return graph;
}

} // namespace snapgate::fixtures
