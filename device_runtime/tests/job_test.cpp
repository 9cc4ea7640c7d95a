#include "fixtures.h"
#include "job.h"
#include "json_reader.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace snapgate;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

json tensor_json(const TensorSpec& spec) {
    json object = {{"name", spec.name}, {"dtype", name_of(spec.dtype)}, {"shape", spec.shape}};
    object["scale"] = spec.scale ? json(*spec.scale) : json(nullptr);
    object["zero_point"] = spec.zero_point ? json(*spec.zero_point) : json(nullptr);
    return object;
}

json graph_json(const GraphSpec& graph) {
    json object = {{"name", graph.name}, {"n_tokens", graph.n_tokens}, {"epcontext_nodes", 1}, {"cpu_nodes", 0}};
    for (const TensorSpec& spec : graph.inputs) {
        object["inputs"].push_back(tensor_json(spec));
    }
    for (const TensorSpec& spec : graph.outputs) {
        object["outputs"].push_back(tensor_json(spec));
    }
    return object;
}

json context_json(std::uint32_t n_tokens) {
    const GraphSpec graph = fixtures::graph(n_tokens);
    return {{"path", graph.name + ".bin"},
            {"sha256", std::string(64, 'a')},
            {"n_bytes", 1000},
            {"graphs", json::array({graph_json(graph)})}};
}

// A valid job for fixtures::model() with one prompt.
json job_json() {
    return {
        {"schema", "snapgate.job/1"},
        {"run_id", "run-1"},
        {"nonce", "n1"},
        {"libraries", {{"backend", "libQnnHtp.so"}, {"system", "libQnnSystem.so"}}},
        {"performance_mode", "burst"},
        {"model",
         {{"n_layers", 1},
          {"n_kv_heads", 1},
          {"head_dim", 2},
          {"vocab_size", 10},
          {"context_length", 8},
          {"mask_value", -100.0},
          {"eos_ids", {9}},
          {"soc_number", 57},
          {"htp_arch", 75},
          {"rope_table", "rope.bin"},
          {"rope_sha256", std::string(64, 'b')}}},
        {"contexts", json::array({context_json(3), context_json(1)})},
        {"prompts", json::array({{{"prompt_id", "p"}, {"mode", "generate"}, {"tokens", {1, 2, 3}}, {"n_gen", 4}}})}};
}

Fault refusal(const json& job) {
    auto parsed = parse_job(job.dump());
    REQUIRE_FALSE(parsed);
    return std::move(parsed).fault();
}

void check_invalid(const json& job, const std::string& path) {
    const Fault fault = refusal(job);
    CHECK(fault.code == ExitCode::kJobInvalid);
    CHECK(fault.where == path);
}

} // namespace

TEST_CASE("a valid job is read whole") {
    json document = job_json();
    document["prompts"][0].update({{"forced", {1, 2, 3, 4}},
                                   {"ignore_eos", true},
                                   {"step_with", "token"},
                                   {"logits", "all"},
                                   {"warmups", 2},
                                   {"repetitions", 5}});
    const auto job = parse_job(document.dump());
    REQUIRE(job);
    CHECK(job->run_id == "run-1");
    CHECK(job->performance_mode == PerformanceMode::kBurst);
    CHECK(job->model.mask_value == -100.0);
    CHECK(job->contexts.at(1).graphs.at(0).n_tokens == 1);
    CHECK(job->contexts[0].graphs[0].inputs[4].zero_point == 128);
    const Prompt& prompt = job->prompts.at(0);
    CHECK(prompt.tokens == std::vector<std::int32_t>{1, 2, 3});
    CHECK(prompt.forced.size() == 4);
    CHECK(prompt.ignore_eos);
    CHECK(prompt.step_with == StepWith::kToken);
    CHECK(prompt.keep_logits);
    CHECK(prompt.warmups == 2);
    CHECK(prompt.repetitions == 5);
}

TEST_CASE("fields with a default may be left out") {
    const auto job = parse_job(job_json().dump());
    REQUIRE(job);
    CHECK(job->prompts[0].repetitions == 1);
    CHECK(job->prompts[0].forced.empty());
    CHECK_FALSE(job->prompts[0].keep_logits);
}

TEST_CASE("an unknown field is refused with its path, at every level") {
    json top = job_json();
    top["extra"] = 1;
    check_invalid(top, "job.extra");
    json prompt = job_json();
    prompt["prompts"][0]["temperature"] = 0.5;
    check_invalid(prompt, "job.prompts[0].temperature");
    json tensor = job_json();
    tensor["contexts"][1]["graphs"][0]["inputs"][2]["axis"] = 0;
    check_invalid(tensor, "job.contexts[1].graphs[0].inputs[2].axis");
    json libraries = job_json();
    libraries["libraries"]["skel"] = "x";
    check_invalid(libraries, "job.libraries.skel");
}

TEST_CASE("a missing field is refused with its path") {
    const json whole = job_json();
    for (const auto& [key, value] : whole.items()) {
        json job = whole;
        job.erase(key);
        check_invalid(job, "job." + key);
    }
    json model = job_json();
    model["model"].erase("mask_value");
    check_invalid(model, "job.model.mask_value");
}

TEST_CASE("a value of the wrong type is refused with its path") {
    const auto with = [](const char* pointer, const json& value) {
        json job = job_json();
        job[json::json_pointer(pointer)] = value;
        return job;
    };
    check_invalid(with("/run_id", 5), "job.run_id");
    check_invalid(with("/prompts", json::object()), "job.prompts");
    check_invalid(with("/prompts/0", 1), "job.prompts[0]");
    check_invalid(with("/prompts/0/tokens/1", "2"), "job.prompts[0].tokens[1]");
    check_invalid(with("/prompts/0/tokens/1", 2.0), "job.prompts[0].tokens[1]");
    check_invalid(with("/prompts/0/tokens/1", true), "job.prompts[0].tokens[1]");
    check_invalid(with("/prompts/0/ignore_eos", 1), "job.prompts[0].ignore_eos");
    check_invalid(with("/model/mask_value", "low"), "job.model.mask_value");
    check_invalid(with("/model", nullptr), "job.model");
}

TEST_CASE("a number out of range is refused, however large") {
    const auto with = [](const char* pointer, const json& value) {
        json job = job_json();
        job[json::json_pointer(pointer)] = value;
        return job;
    };
    check_invalid(with("/prompts/0/tokens/0", 10), "job.prompts[0].tokens[0]"); // vocabulary is 0 to 9
    check_invalid(with("/prompts/0/tokens/0", -1), "job.prompts[0].tokens[0]");
    check_invalid(with("/prompts/0/tokens/0", 18446744073709551615ULL), "job.prompts[0].tokens[0]");
    check_invalid(with("/prompts/0/tokens/0", INT64_MIN), "job.prompts[0].tokens[0]");
    check_invalid(with("/prompts/0/n_gen", 4294967296ULL), "job.prompts[0].n_gen");
    check_invalid(with("/model/eos_ids/0", 10), "job.model.eos_ids[0]");
    check_invalid(with("/model/n_layers", 0), "job.model.n_layers");
    check_invalid(with("/model/head_dim", 3), "job.model.head_dim");
    check_invalid(with("/model/mask_value", 0), "job.model.mask_value");
    check_invalid(with("/contexts/0/graphs/0/inputs/0/shape/0", 0), "job.contexts[0].graphs[0].inputs[0].shape[0]");
    const std::string huge = job_json().dump();
    auto text = huge;
    text.replace(text.find("-100.0"), 6, "-1e999");
    const auto parsed = parse_job(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.fault().code == ExitCode::kJobInvalid);
}

TEST_CASE("a word outside the closed sets is refused with the words there are") {
    json mode = job_json();
    mode["prompts"][0]["mode"] = "chat";
    CHECK(refusal(mode).expected == "'generate' or 'score'");
    json performance = job_json();
    performance["performance_mode"] = "turbo";
    check_invalid(performance, "job.performance_mode");
    json dtype = job_json();
    dtype["contexts"][0]["graphs"][0]["inputs"][0]["dtype"] = "int8";
    check_invalid(dtype, "job.contexts[0].graphs[0].inputs[0].dtype");
    json schema = job_json();
    schema["schema"] = "snapgate.job/2";
    check_invalid(schema, "job.schema");
    json hash = job_json();
    hash["model"]["rope_sha256"] = std::string(64, 'B');
    check_invalid(hash, "job.model.rope_sha256");
}

TEST_CASE("a field that occurs twice is refused") {
    std::string text = job_json().dump();
    text.insert(1, "\"nonce\":\"other\",");
    const auto parsed = parse_job(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.fault().code == ExitCode::kJobInvalid);
    CHECK(parsed.fault().found == "'nonce'");
}

TEST_CASE("text that is no JSON, or nested without end, is refused") {
    for (const std::string& text : {std::string(), std::string("{"), std::string("nul"), std::string("[]"),
                                    std::string(100000, '['), std::string("\xff\xfe"), job_json().dump() + "x"}) {
        const auto parsed = parse_job(text);
        REQUIRE_FALSE(parsed);
        CHECK(parsed.fault().code == ExitCode::kJobInvalid);
    }
}

TEST_CASE("a refusal repeats no more of a text than a reader needs") {
    for (const std::string& text : {"\"" + std::string(1000000, 'a'), std::string(1000000, '1') + "x",
                                    "{\"" + std::string(1000000, 'k') + "\": 1}"}) {
        const auto parsed = parse_job(text);
        REQUIRE_FALSE(parsed);
        CHECK(parsed.fault().code == ExitCode::kJobInvalid);
        CHECK(parsed.fault().where.size() + parsed.fault().found.size() <= 400);
    }
}

TEST_CASE("an integer keeps both its bounds, also below zero") {
    const auto read = [](std::int64_t value) { return read_integer<std::int32_t>(json(value), "job.x", -10, -5); };
    CHECK(read(-10) == -10);
    CHECK(read(-5) == -5);
    for (const std::int64_t outside : {-11, -4, -1, 0, 7}) {
        CHECK_THROWS_AS(read(outside), JsonRefusal);
    }
}

TEST_CASE("a temperature below zero is refused, however near") {
    json job = job_json();
    job["prompts"][0]["sampling"] = {{"temperature", -1e-310}};
    check_invalid(job, "job.prompts[0].sampling.temperature");
    job["prompts"][0]["sampling"] = {{"temperature", 0.0}};
    CHECK(parse_job(job.dump()));
}

TEST_CASE("a prompt that contradicts itself is refused") {
    json score = job_json();
    score["prompts"][0]["mode"] = "score";
    check_invalid(score, "job.prompts[0].n_gen");
    json none = job_json();
    none["prompts"][0]["n_gen"] = 0;
    check_invalid(none, "job.prompts[0].n_gen");
    json forced = job_json();
    forced["prompts"][0]["forced"] = {1, 2};
    check_invalid(forced, "job.prompts[0].forced");
    json empty = job_json();
    empty["prompts"][0]["tokens"] = json::array();
    check_invalid(empty, "job.prompts[0].tokens");
}

TEST_CASE("a prompt may fill the context and not exceed it") {
    json full = job_json();
    full["prompts"][0]["tokens"] = std::vector<int>(8, 1);
    CHECK(parse_job(full.dump()));
    json over = job_json();
    over["prompts"][0]["tokens"] = std::vector<int>(9, 1);
    const Fault fault = refusal(over);
    CHECK(fault.code == ExitCode::kPromptTooLong);
    CHECK(fault.found == "9 tokens");
    CHECK(fault.expected == "at most 8");
}

TEST_CASE("scale and zero point go with fixed-point types, both or none") {
    json lone = job_json();
    lone["contexts"][0]["graphs"][0]["inputs"][4]["zero_point"] = nullptr;
    check_invalid(lone, "job.contexts[0].graphs[0].inputs[4]");
    json ids = job_json();
    ids["contexts"][0]["graphs"][0]["inputs"][0]["scale"] = 0.1;
    check_invalid(ids, "job.contexts[0].graphs[0].inputs[0]");
    json negative = job_json();
    negative["contexts"][0]["graphs"][0]["inputs"][4]["scale"] = -0.5;
    check_invalid(negative, "job.contexts[0].graphs[0].inputs[4].scale");
    json outside = job_json(); // of uint8: no element would stand for 0
    outside["contexts"][0]["graphs"][0]["inputs"][4]["zero_point"] = 256;
    check_invalid(outside, "job.contexts[0].graphs[0].inputs[4].zero_point");
    outside["contexts"][0]["graphs"][0]["inputs"][4]["zero_point"] = -1;
    check_invalid(outside, "job.contexts[0].graphs[0].inputs[4].zero_point");
}

TEST_CASE("an AR-1 graph and up to seven larger are accepted") {
    json alone = job_json();
    alone["contexts"] = json::array({context_json(1)});
    CHECK(parse_job(alone.dump()));
    json no_decode = job_json();
    no_decode["contexts"] = json::array({context_json(3)});
    CHECK_THAT(refusal(no_decode).what, Contains("no graph takes one token"));
    json many = job_json();
    many["model"]["context_length"] = 16;
    many["contexts"] = json::array();
    for (int n = 1; n <= 9; ++n) {
        CHECK((n == 1 || parse_job(many.dump())));
        many["contexts"].push_back(context_json(1)); // the parser leaves shapes to find_tensors
        many["contexts"].back()["graphs"][0]["n_tokens"] = n;
    }
    CHECK(refusal(many).what == "too many graphs");
    CHECK(refusal(many).found == "9 sizes");
    json shards = job_json(); // whether they fit together is for find_tensors
    shards["contexts"] = json::array({context_json(1), context_json(1)});
    CHECK(parse_job(shards.dump()));
}
