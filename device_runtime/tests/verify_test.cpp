#include "fixtures.h"
#include "verify.h"

#include <catch2/catch.hpp>

using namespace snapgate;
using Catch::Matchers::Contains;

namespace {

qnn::TensorInfo info_of(const TensorSpec& spec, std::uint32_t id, std::uint32_t type) {
    qnn::TensorInfo info;
    info.version = 2;
    info.id = id;
    info.name = spec.name;
    info.type = type;
    info.dimensions = spec.shape;
    switch (spec.dtype) {
    case DType::kInt32:
        info.data_type = 0x032;
        break;
    case DType::kUFixed8:
        info.data_type = 0x408;
        break;
    default:
        info.data_type = 0x416;
        break;
    }
    if (spec.scale) {
        info.has_scale_offset = true;
        info.scale = static_cast<float>(*spec.scale);
        info.offset = -*spec.zero_point;
    }
    return info;
}

// What a binary would say about a graph that is as specified.
qnn::BinaryInfo binary_of(const GraphSpec& graph) {
    qnn::GraphInfo info{graph.name, {}, {}};
    std::uint32_t id = 1;
    for (const TensorSpec& spec : graph.inputs) {
        info.inputs.push_back(info_of(spec, id++, 0));
    }
    for (const TensorSpec& spec : graph.outputs) {
        info.outputs.push_back(info_of(spec, id++, 1));
    }
    qnn::BinaryInfo binary;
    binary.dsp_arch = 75;
    binary.soc_number = 57;
    binary.graphs = {info};
    return binary;
}

Fault graph_fault(const qnn::BinaryInfo& binary) {
    auto graph = verify_graph("ar3.bin", binary, fixtures::graph(3));
    REQUIRE_FALSE(graph);
    CHECK(graph.fault().code == ExitCode::kTensorMismatch);
    return std::move(graph).fault();
}

Span<const std::byte> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

} // namespace

TEST_CASE("a binary that is as the manifest says passes") {
    const auto binary = binary_of(fixtures::graph(3));
    CHECK(verify_target("ar3.bin", binary, fixtures::model()));
    CHECK(verify_graph("ar3.bin", binary, fixtures::graph(3)));
}

TEST_CASE("content is compared by size, then by hash") {
    const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    CHECK(verify_content("f", bytes_of("abc"), 3, abc));
    const Status size = verify_content("f", bytes_of("abcd"), 3, abc);
    REQUIRE_FALSE(size);
    CHECK(size.fault().code == ExitCode::kHashMismatch);
    CHECK(size.fault().found == "4 bytes");
    const Status hash = verify_content("f", bytes_of("abd"), 3, abc);
    REQUIRE_FALSE(hash);
    CHECK(hash.fault().expected == abc);
}

TEST_CASE("another HTP arch or SoC is refused, and so is one that is not stated") {
    auto binary = binary_of(fixtures::graph(3));
    binary.dsp_arch = 79;
    const Status arch = verify_target("ar3.bin", binary, fixtures::model());
    REQUIRE_FALSE(arch);
    CHECK(arch.fault().code == ExitCode::kArchMismatch);
    CHECK(arch.fault().found == "v79");
    CHECK(arch.fault().expected == "v75");
    binary.dsp_arch = 75;
    binary.soc_number = 69;
    const Status soc = verify_target("ar3.bin", binary, fixtures::model());
    REQUIRE_FALSE(soc);
    CHECK(soc.fault().found == "soc 69");
    binary.dsp_arch.reset();
    CHECK_FALSE(verify_target("ar3.bin", binary, fixtures::model()));
}

TEST_CASE("a graph of another name is named with those there are") {
    auto binary = binary_of(fixtures::graph(3));
    binary.graphs[0].name = "other";
    const Fault fault = graph_fault(binary);
    CHECK(fault.found == "other");
    CHECK(fault.expected == "ar3");
}

TEST_CASE("a missing, renamed or extra tensor is found") {
    auto renamed = binary_of(fixtures::graph(3));
    renamed.graphs[0].inputs[4].name = "past_key_0";
    CHECK(graph_fault(renamed).where == "ar3/past_key_0_in");
    auto extra = binary_of(fixtures::graph(3));
    extra.graphs[0].outputs.push_back(extra.graphs[0].outputs[0]);
    extra.graphs[0].outputs.back().name = "more";
    CHECK(graph_fault(extra).what == "wrong number of outputs");
}

TEST_CASE("a wrong dtype, type or dimension is found and named") {
    auto dtype = binary_of(fixtures::graph(3));
    dtype.graphs[0].inputs[4].data_type = 0x416;
    CHECK(graph_fault(dtype).found == "ufixed16");
    dtype.graphs[0].inputs[4].data_type = 0x999;
    CHECK(graph_fault(dtype).found == "QNN data type 0x999");
    auto type = binary_of(fixtures::graph(3));
    type.graphs[0].outputs[0].type = 3;
    CHECK(graph_fault(type).what == "wrong tensor type");
    auto dims = binary_of(fixtures::graph(3));
    dims.graphs[0].outputs[0].dimensions = {1, 3, 11};
    CHECK(graph_fault(dims).found == "(1, 3, 11)");
    dims.graphs[0].outputs[0].dimensions = {3, 10};
    CHECK(graph_fault(dims).found == "(3, 10)");
}

TEST_CASE("a wrong scale or zero point is found; the offset is the negated zero point") {
    auto scale = binary_of(fixtures::graph(3));
    scale.graphs[0].inputs[4].scale = 0.25F;
    CHECK(graph_fault(scale).found == "scale 0.25 zero point 128");
    auto offset = binary_of(fixtures::graph(3));
    offset.graphs[0].inputs[4].offset = 128;
    CHECK(graph_fault(offset).found == "scale 0.5 zero point -128");
    auto none = binary_of(fixtures::graph(3));
    none.graphs[0].inputs[4].has_scale_offset = false;
    CHECK(graph_fault(none).found == "no scale and offset");
}
