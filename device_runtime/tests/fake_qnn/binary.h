// The stand-in's "context binary": a JSON file that describes graphs, as a test wrote it.
//
//   {"info_version": 3, "dsp_arch": 75, "soc_number": 57, "build_id": "standin-1", "masked_raw": 0,
//    "graphs": [{"name": "ar8", "n_tokens": 8, "inputs": [TENSOR...], "outputs": [TENSOR...]}]}
//   TENSOR: {"id": 1, "name": "input_ids", "data_type": 50, "dims": [1, 8], "scale": 0.5, "offset": -128}
#pragma once

#include "qnn_abi.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace standin {

struct BinaryTensor {
    std::uint32_t id = 0;
    std::string name;
    std::uint32_t data_type = 0;
    std::vector<std::uint32_t> dims;
    bool quantized = false;
    float scale = 0;
    std::int32_t offset = 0;
    std::uint32_t tensor_version = 2;

    std::size_t element_bytes() const;
    std::size_t n_bytes() const;
};

struct BinaryGraph {
    std::string name;
    std::uint32_t n_tokens = 0;
    std::vector<BinaryTensor> inputs;
    std::vector<BinaryTensor> outputs;
};

struct Binary {
    std::uint32_t info_version = 3;
    std::uint32_t dsp_arch = 0;
    std::uint32_t soc_number = 0;
    std::string build_id;
    std::uint32_t masked_raw = 0;
    std::vector<BinaryGraph> graphs;
};

// Null when the bytes are no such file.
std::unique_ptr<Binary> parse_binary(const void* bytes, std::uint64_t size);

} // namespace standin
