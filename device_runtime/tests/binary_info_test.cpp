#include "binary_info.h"

#include <catch2/catch.hpp>

using namespace snapgate::qnn;
using snapgate::ExitCode;

namespace {

// The metadata of one graph with one input, in memory as the System library would lay it out.
struct Metadata {
    std::uint32_t dims[2] = {1, 64};
    abi::Tensor tensor{};
    abi::GraphInfo graph{};
    abi::HtpContextMetadata htp{1, 75};
    abi::BinaryInfo info{};

    Metadata() {
        tensor.version = 2;
        tensor.id = 7;
        tensor.name = "input_ids";
        tensor.data_type = abi::kInt32;
        tensor.quantize.definition = abi::kQuantizationUndefined;
        tensor.rank = 2;
        tensor.dimensions = dims;
        graph.version = 3;
        graph.name = "ar64";
        graph.n_inputs = 1;
        graph.inputs = &tensor;
        info.version = 3;
        info.v3.build_id = "build 5";
        info.v3.context_blob = {4, 0, 6};
        info.v3.n_graphs = 1;
        info.v3.graphs = &graph;
        info.v3.metadata = &htp;
        info.v3.metadata_size = sizeof htp;
        info.v3.soc_number = 57;
    }
};

snapgate::Fault refusal(const Metadata& metadata) {
    auto copy = copy_binary_info(&metadata.info, "ar64.bin");
    REQUIRE_FALSE(copy);
    CHECK(copy.fault().code == ExitCode::kContextFailed);
    return std::move(copy).fault();
}

} // namespace

TEST_CASE("metadata of version 3 is copied whole") {
    const Metadata metadata;
    const auto copy = copy_binary_info(&metadata.info, "ar64.bin");
    REQUIRE(copy);
    CHECK(copy->dsp_arch == 75U);
    CHECK(copy->soc_number == 57U);
    CHECK(copy->blob_version == "4.0.6");
    CHECK(copy->build_id == "build 5");
    REQUIRE(copy->graphs.size() == 1);
    CHECK(copy->graphs[0].name == "ar64");
    CHECK(copy->graphs[0].inputs.at(0).id == 7);
    CHECK(copy->graphs[0].inputs.at(0).dimensions == std::vector<std::uint32_t>{1, 64});
    CHECK_FALSE(copy->graphs[0].inputs.at(0).has_scale_offset);
}

TEST_CASE("metadata of versions 1 and 2 has its fields elsewhere and states no arch") {
    Metadata metadata;
    for (const std::uint32_t version : {1U, 2U}) {
        metadata.info = {};
        metadata.info.version = version;
        metadata.info.v1.build_id = "old";
        metadata.info.v1.context_blob = {3, 3, 4};
        metadata.info.v1.n_graphs = 1;
        metadata.info.v1.graphs = &metadata.graph;
        const auto copy = copy_binary_info(&metadata.info, "ar64.bin");
        REQUIRE(copy);
        CHECK(copy->build_id == "old");
        CHECK(copy->blob_version == "3.3.4");
        CHECK(copy->graphs.size() == 1);
        CHECK_FALSE(copy->dsp_arch);
        CHECK_FALSE(copy->soc_number);
    }
}

TEST_CASE("HTP metadata of unknown version or too short states no arch") {
    Metadata version;
    version.htp.version = 2;
    CHECK_FALSE(copy_binary_info(&version.info, "f")->dsp_arch);
    Metadata size;
    size.info.v3.metadata_size = 4;
    CHECK_FALSE(copy_binary_info(&size.info, "f")->dsp_arch);
    Metadata none;
    none.info.v3.metadata = nullptr;
    CHECK_FALSE(copy_binary_info(&none.info, "f")->dsp_arch);
}

TEST_CASE("implausible metadata is refused before it is read") {
    CHECK_FALSE(copy_binary_info(nullptr, "f"));
    Metadata version;
    version.info.version = 4;
    CHECK(refusal(version).found == "4");
    Metadata graphs;
    graphs.info.v3.n_graphs = 1000000;
    CHECK(refusal(graphs).found == "1000000");
    Metadata no_graph;
    no_graph.info.v3.graphs = nullptr;
    refusal(no_graph);
    Metadata graph_version;
    graph_version.graph.version = 0;
    CHECK(refusal(graph_version).what == "a graph description of unknown version");
    Metadata tensors;
    tensors.graph.n_inputs = 4000000000U;
    CHECK(refusal(tensors).found == "4000000000");
    Metadata null_tensors;
    null_tensors.graph.n_outputs = 1;
    refusal(null_tensors);
    Metadata rank;
    rank.tensor.rank = 9;
    CHECK(refusal(rank).found == "input_ids: 9");
    Metadata null_dims;
    null_dims.tensor.dimensions = nullptr;
    refusal(null_dims);
    Metadata tensor_version;
    tensor_version.tensor.version = 3;
    refusal(tensor_version);
}

TEST_CASE("names that are null or endless are bounded") {
    Metadata metadata;
    const std::string endless(10000, 'x');
    metadata.graph.name = nullptr;
    metadata.tensor.name = endless.c_str();
    const auto copy = copy_binary_info(&metadata.info, "f");
    REQUIRE(copy);
    CHECK(copy->graphs[0].name.empty());
    CHECK(copy->graphs[0].inputs[0].name.size() == 4096);
}
