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

namespace {

// graph(3) of one layer, its norm and head in a shard of their own.
struct TwoShards {
    GraphSpec first = fixtures::graph(3);
    GraphSpec second = fixtures::graph(3);

    TwoShards() {
        const TensorSpec hidden = fixtures::fixed("hidden", DType::kUFixed16, {1, 3, 4}, 0.5, 7);
        first.name = "ar3_shard1";
        first.outputs[0] = hidden;
        second.name = "ar3_shard2";
        second.inputs = {hidden};
        second.outputs.resize(1);
    }

    Fault fault() const {
        auto tensors = find_tensors(Shards{&first, &second}, fixtures::model());
        REQUIRE_FALSE(tensors);
        CHECK(tensors.fault().code == ExitCode::kTensorMismatch);
        return std::move(tensors).fault();
    }
};

} // namespace

TEST_CASE("two shards make one step, with what is handed on among its taps") {
    const TwoShards shards;
    const auto tensors = find_tensors(Shards{&shards.first, &shards.second}, fixtures::model());
    REQUIRE(tensors);
    CHECK(tensors->logits == &shards.second.outputs[0]);
    CHECK(tensors->past_keys[0] == &shards.first.inputs[4]);
    REQUIRE(tensors->taps.size() == 1);
    CHECK(tensors->taps[0] == &shards.first.outputs[0]);
}

TEST_CASE("shards in the wrong order, or of other numbers, are refused") {
    const TwoShards shards;
    const auto turned = find_tensors(Shards{&shards.second, &shards.first}, fixtures::model());
    REQUIRE_FALSE(turned);
    CHECK(turned.fault().where == "ar3_shard1/hidden");

    TwoShards scaled;
    scaled.second.inputs[0].scale = 0.25;
    CHECK(scaled.fault().where == "ar3_shard2/hidden");
    CHECK(scaled.fault().found == "ufixed16 scale 0.25 zero point 7 (1, 3, 4)");
    CHECK(scaled.fault().expected == "ufixed16 scale 0.5 zero point 7 (1, 3, 4)");

    TwoShards masks;
    masks.second.inputs.push_back(masks.first.inputs[1]);
    CHECK(find_tensors(Shards{&masks.first, &masks.second}, fixtures::model()));
    masks.second.inputs[1].zero_point = 1;
    CHECK(masks.fault().where == "ar3_shard2/attention_mask");
}

TEST_CASE("a name that two shards put out, or a cache that two read, is refused") {
    TwoShards twice;
    twice.second.outputs.push_back(twice.first.outputs[1]);
    CHECK(twice.fault().where == "ar3_shard2/past_key_0_out");
    TwoShards cache;
    cache.second.inputs.push_back(cache.first.inputs[4]);
    CHECK(cache.fault().where == "ar3_shard2/past_key_0_in");
    TwoShards missing;
    missing.second.inputs[0].name = "other";
    CHECK(missing.fault().where == "ar3_shard2/other");
}
