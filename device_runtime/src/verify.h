// The checks the QNN library does not make: it loads damaged files and runs graphs with wrong sizes and types.
#pragma once

#include "binary_info.h"
#include "job.h"
#include "result.h"
#include "span.h"

#include <string>

namespace snapgate {

// HASH_MISMATCH when size or sha256 differ. Size is compared first; `n_bytes` may be unknown.
Status verify_content(const std::string& path, Span<const std::byte> content, std::optional<std::uint64_t> n_bytes,
                      const std::string& sha256);

// ARCH_MISMATCH when the binary was compiled for another HTP arch or SoC, or does not say for which.
Status verify_target(const std::string& path, const qnn::BinaryInfo& info, const JobModel& model);

// The graph of that name. TENSOR_MISMATCH names the first tensor whose name, type, dtype, dimensions, byte size or
// encoding is not what the job states.
Result<const qnn::GraphInfo*> verify_graph(const std::string& path, const qnn::BinaryInfo& info,
                                           const GraphSpec& graph);

} // namespace snapgate
