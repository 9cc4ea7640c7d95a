// What is computed from one row of raw logits on the host.
#pragma once

#include "encoding.h"

#include <cstddef>
#include <cstdint>

namespace snapgate {

// One row of logits (vocab_size), borrowed from a graph's output.
struct LogitsRow {
    const std::byte* elements = nullptr;
    std::uint32_t n_columns = 0;
    Encoding encoding;
};

// The id of the greatest logit, compared on the raw elements; the lowest id on a tie. NaN is never chosen; a row of
// nothing but NaN gives 0.
std::int32_t argmax(const LogitsRow& row) noexcept;

// -ln softmax(logits)[target], in double. Infinite or NaN where the logits are.
double negative_log_likelihood(const LogitsRow& row, std::int32_t target) noexcept;

} // namespace snapgate
