#include "fixtures.h"
#include "graph_shape.h"

#include <catch2/catch.hpp>

using namespace snapgate;
using Catch::Matchers::Contains;

namespace {

Fault fault_of(const GraphSpec& graph) {
    auto tensors = find_tensors(graph, fixtures::model());
    REQUIRE_FALSE(tensors);
    CHECK(tensors.fault().code == ExitCode::kTensorMismatch);
    return std::move(tensors).fault();
}

} // namespace

TEST_CASE("all tensors of a well-formed graph are found") {
    const GraphSpec graph = fixtures::graph(3);
    const auto tensors = find_tensors(graph, fixtures::model());
    REQUIRE(tensors);
    CHECK(tensors->past_keys.at(0) == &graph.inputs[4]);
    CHECK(tensors->logits == &graph.outputs[0]);
    CHECK(tensors->values.at(0) == &graph.outputs[2]);
}

TEST_CASE("a missing tensor is named with the shape it should have") {
    GraphSpec graph = fixtures::graph(3);
    graph.inputs.erase(graph.inputs.begin() + 4);
    const Fault fault = fault_of(graph);
    CHECK(fault.where == "ar3/past_key_0_in");
    CHECK(fault.expected == "(1, 1, 2, 5)");
}

TEST_CASE("a wrong shape is named with what was found") {
    GraphSpec graph = fixtures::graph(3);
    graph.inputs[1].shape = {1, 1, 3, 7};
    const Fault fault = fault_of(graph);
    CHECK(fault.where == "ar3/attention_mask");
    CHECK(fault.found == "(1, 1, 3, 7)");
    CHECK(fault.expected == "(1, 1, 3, 8)");
}

TEST_CASE("a tensor nobody fills is refused") {
    GraphSpec graph = fixtures::graph(3);
    graph.inputs.push_back({"position_ids", DType::kInt32, {1, 3}, {}, {}});
    CHECK(fault_of(graph).where == "ar3/position_ids");
}

TEST_CASE("an output of another name is a tap that only a dump reads") {
    GraphSpec graph = fixtures::graph(3);
    graph.outputs.push_back({"layer_0_hidden", DType::kFloat16, {1, 3, 64}, {}, {}});
    const auto tensors = find_tensors(graph, fixtures::model());
    REQUIRE(tensors);
    REQUIRE(tensors->taps.size() == 1);
    CHECK(tensors->taps[0]->name == "layer_0_hidden");
}

TEST_CASE("a repeated name is refused") {
    GraphSpec graph = fixtures::graph(3);
    graph.outputs.push_back(graph.outputs[0]);
    CHECK_THAT(fault_of(graph).what, Contains("same name"));
}

TEST_CASE("token ids are int32 and nothing else is") {
    GraphSpec ids = fixtures::graph(3);
    ids.inputs[0].dtype = DType::kFloat32;
    CHECK(fault_of(ids).expected == "int32");
    GraphSpec logits = fixtures::graph(3);
    logits.outputs[0] = {"logits", DType::kInt32, {1, 3, 10}, {}, {}};
    CHECK(fault_of(logits).where == "ar3/logits");
}

TEST_CASE("a cache that changes its scale from prefill to decode is refused") {
    const JobModel model = fixtures::model();
    const GraphSpec prefill = fixtures::graph(3);
    GraphSpec decode = fixtures::graph(1);
    CHECK(check_shared_encodings({*find_tensors(prefill, model), *find_tensors(decode, model)}));
    decode.inputs[4].scale = 0.51;
    const Status status = check_shared_encodings({*find_tensors(prefill, model), *find_tensors(decode, model)});
    REQUIRE_FALSE(status);
    CHECK(status.fault().where == "job/past_key_0_in");
    CHECK(status.fault().found == "ufixed8 scale 0.51 zero point 128");
}

TEST_CASE("logits of both graphs must have one encoding") {
    const JobModel model = fixtures::model();
    const GraphSpec prefill = fixtures::graph(3);
    GraphSpec decode = fixtures::graph(1);
    decode.outputs[0].zero_point = 1;
    const Status status = check_shared_encodings({*find_tensors(prefill, model), *find_tensors(decode, model)});
    REQUIRE_FALSE(status);
    CHECK(status.fault().where == "job/logits");
}
