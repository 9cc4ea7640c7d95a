// Any metadata that a System library could lay out: versions, counts, ranks, null pointers and names without an end.
// A count is true or above the limit: one that is plausible and wrong cannot be told by anybody who reads the memory.
#include "binary_info.h"
#include "job.h"
#include "verify.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace snapgate;
namespace abi = qnn::abi;

class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }

    std::uint32_t word() {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) {
            value = value << 8 | byte();
        }
        return value;
    }

    // Mostly a value that readers know, sometimes any.
    std::uint32_t version(std::uint32_t highest) {
        const std::uint8_t choice = byte();
        return choice < 240 ? 1 + choice % highest : word();
    }

    // A count of at most `most` entries that exist, or a lie that no reader may follow.
    std::uint32_t count(std::uint32_t most, std::uint32_t limit) {
        const std::uint8_t choice = byte();
        if (choice >= 250) {
            const std::uint32_t lie = word();
            return lie > limit ? lie : limit + 1 + lie;
        }
        return choice % (most + 1);
    }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

constexpr std::uint32_t kMostTensors = 5;
constexpr std::uint32_t kMostGraphs = 3;
constexpr std::uint32_t kMostDims = 8;

// Owns what the metadata points to; every block is its own allocation, so that a step too far is seen.
class Metadata {
  public:
    explicit Metadata(Bytes bytes) : bytes_(bytes) {
        info_.version = bytes_.version(3);
        const char* build_id = text();
        const std::uint32_t n_graphs = bytes_.count(kMostGraphs, 256);
        const abi::GraphInfo* graphs = bytes_.byte() == 255 ? nullptr : make_graphs(n_graphs);
        htp_.version = bytes_.version(2);
        htp_.dsp_arch = bytes_.word();
        if (info_.version == 3) {
            info_.v3.build_id = build_id;
            info_.v3.context_blob = {bytes_.word(), bytes_.word(), bytes_.word()};
            info_.v3.n_graphs = n_graphs;
            info_.v3.graphs = graphs;
            info_.v3.metadata = bytes_.byte() < 16 ? nullptr : &htp_;
            info_.v3.metadata_size = bytes_.byte() % 16;
            info_.v3.soc_number = bytes_.word();
            if (info_.v3.metadata_size > sizeof htp_) {
                info_.v3.metadata_size = sizeof htp_;
            }
        } else {
            info_.v1.build_id = build_id;
            info_.v1.n_graphs = n_graphs;
            info_.v1.graphs = graphs;
        }
    }

    const abi::BinaryInfo& info() const { return info_; }

  private:
    const char* text() {
        const std::uint8_t length = bytes_.byte();
        if (length == 255) {
            return nullptr;
        }
        std::vector<char> made(length == 254 ? 4096 : length);
        for (char& letter : made) {
            letter = length == 254 ? 'x' : static_cast<char>(bytes_.byte());
        }
        if (length != 254) { // 254: as long as a reader may go, and no end
            made.push_back('\0');
        }
        texts_.push_back(std::move(made));
        return texts_.back().data();
    }

    const abi::Tensor* make_tensors(std::uint32_t n) {
        std::vector<abi::Tensor> made(n > kMostTensors ? 0 : n);
        for (abi::Tensor& tensor : made) {
            tensor.version = bytes_.version(2);
            tensor.id = bytes_.word();
            tensor.name = text();
            tensor.type = bytes_.byte();
            tensor.data_type = bytes_.byte() < 128 ? std::uint32_t{abi::kUFixed16} : bytes_.word();
            tensor.quantize.definition = bytes_.version(1);
            tensor.quantize.encoding = bytes_.byte() % 13;
            tensor.quantize.scale_offset = {static_cast<float>(bytes_.word()),
                                            static_cast<std::int32_t>(bytes_.word())};
            tensor.rank = bytes_.count(kMostDims, kMostDims);
            if (tensor.rank <= kMostDims && bytes_.byte() != 255) {
                std::vector<std::uint32_t> dims(tensor.rank);
                for (std::uint32_t& extent : dims) {
                    extent = bytes_.byte() < 200 ? bytes_.byte() : bytes_.word();
                }
                dims_.push_back(std::move(dims));
                tensor.dimensions = dims_.back().data();
            }
        }
        tensors_.push_back(std::move(made));
        return bytes_.byte() == 255 ? nullptr : tensors_.back().data();
    }

    const abi::GraphInfo* make_graphs(std::uint32_t n) {
        graphs_.resize(n > kMostGraphs ? 0 : n);
        for (abi::GraphInfo& graph : graphs_) {
            graph.version = bytes_.version(3);
            graph.name = text();
            graph.n_inputs = bytes_.count(kMostTensors, 16384);
            graph.inputs = make_tensors(graph.n_inputs);
            graph.n_outputs = bytes_.count(kMostTensors, 16384);
            graph.outputs = make_tensors(graph.n_outputs);
        }
        return graphs_.data();
    }

    Bytes bytes_;
    abi::BinaryInfo info_{};
    abi::HtpContextMetadata htp_{};
    std::vector<abi::GraphInfo> graphs_;
    std::vector<std::vector<abi::Tensor>> tensors_;
    std::vector<std::vector<std::uint32_t>> dims_;
    std::vector<std::vector<char>> texts_;
};

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

// What a job would state of a graph that is exactly this one.
GraphSpec spec_of(const qnn::GraphInfo& graph) {
    GraphSpec spec;
    spec.name = graph.name;
    spec.n_tokens = 1;
    const auto add = [](const std::vector<qnn::TensorInfo>& from, std::vector<TensorSpec>& to) {
        for (const qnn::TensorInfo& tensor : from) {
            TensorSpec made;
            made.name = tensor.name;
            made.dtype = DType::kUFixed16;
            made.shape = tensor.dimensions;
            if (tensor.has_scale_offset) {
                made.scale = static_cast<double>(tensor.scale);
                made.zero_point = static_cast<std::int32_t>(0U - static_cast<std::uint32_t>(tensor.offset));
            }
            to.push_back(std::move(made));
        }
    };
    add(graph.inputs, spec.inputs);
    add(graph.outputs, spec.outputs);
    return spec;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Metadata metadata(Bytes(data, size));
    const auto info = qnn::copy_binary_info(&metadata.info(), "fuzz.bin");
    if (!info) {
        require(info.fault().code == ExitCode::kContextFailed && !info.fault().what.empty());
        return 0;
    }
    require(!info->graphs.empty() && info->graphs.size() <= kMostGraphs && info->build_id.size() <= 4096);
    JobModel model;
    model.soc_number = 57;
    model.htp_arch = 75;
    const bool right = info->dsp_arch == 75U && info->soc_number == 57U;
    require(static_cast<bool>(verify_target("fuzz.bin", *info, model)) == right);
    for (const qnn::GraphInfo& graph : info->graphs) {
        require(graph.name.size() <= 4096);
        static_cast<void>(static_cast<bool>(verify_graph("fuzz.bin", *info, spec_of(graph))));
    }
    return 0;
}
