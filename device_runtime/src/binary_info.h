// What a context binary says about itself, copied out of the System library's memory and bounded.
#pragma once

#include "qnn_library.h"
#include "result.h"
#include "span.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snapgate::qnn {

struct TensorInfo {
    std::uint32_t version = 0; // of the tensor struct
    std::uint32_t id = 0;
    std::string name;
    std::uint32_t type = 0;
    std::uint32_t data_format = 0;
    std::uint32_t data_type = 0;
    std::vector<std::uint32_t> dimensions;
    bool has_scale_offset = false;
    float scale = 0;
    std::int32_t offset = 0; // the negated zero point
};

struct GraphInfo {
    std::string name;
    std::vector<TensorInfo> inputs;
    std::vector<TensorInfo> outputs;
    std::optional<std::uint32_t> vtcm_bytes = {}; // that the graph was compiled for; graph version 3 only
};

struct BinaryInfo {
    std::optional<std::uint32_t> dsp_arch;   // metadata version 3 only
    std::optional<std::uint32_t> soc_number; // metadata version 3 only
    std::string build_id;
    std::string blob_version;
    std::vector<GraphInfo> graphs;
};

// CONTEXT_FAILED when the library refuses the binary, or when the metadata is of an unknown version or implausible
// (null pointers, more graphs, tensors or dimensions than any model has). `name` is the file, for messages.
Result<BinaryInfo> read_binary_info(const SystemLibrary& system, Span<const std::byte> binary, const std::string& name);

// The same, from metadata already in memory.
Result<BinaryInfo> copy_binary_info(const abi::BinaryInfo* info, const std::string& name);

} // namespace snapgate::qnn
