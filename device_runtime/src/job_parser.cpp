#include "job.h"
#include "json_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

namespace snapgate {
namespace {

using nlohmann::json;

// Far above any model. find_tensors bounds what tensors of these sizes may take.
constexpr std::uint32_t kMaxExtent = 1U << 20;
constexpr std::uint32_t kMaxLayers = 1024;
constexpr std::uint32_t kMaxRepetitions = 1'000'000;
constexpr std::size_t kMaxRank = 8;
constexpr double kMinPace = 0.001;
constexpr double kMaxPace = 1e6;
constexpr double kMaxPause = 3600;
constexpr double kMaxSeconds = 86'400;
constexpr std::uint32_t kMaxSleepLatency = 65535;
constexpr std::uint32_t kMaxRpcPolling = 9999; // the highest that libraries take
constexpr std::size_t kMaxCores = 1024;        // of a cpu_set_t
constexpr std::size_t kMaxGraphs = 64;
constexpr std::size_t kMaxTensors = 4 * kMaxLayers;

template <typename Value>
struct Named {
    Value value;
    const char* name;
};

// In the order of the enumerations, which name_of relies on.
constexpr std::array<Named<PerformanceMode>, 10> kPerformanceModes = {{
    {PerformanceMode::kDefault, "default"},
    {PerformanceMode::kBurst, "burst"},
    {PerformanceMode::kSustainedHighPerformance, "sustained_high_performance"},
    {PerformanceMode::kHighPerformance, "high_performance"},
    {PerformanceMode::kBalanced, "balanced"},
    {PerformanceMode::kLowBalanced, "low_balanced"},
    {PerformanceMode::kHighPowerSaver, "high_power_saver"},
    {PerformanceMode::kPowerSaver, "power_saver"},
    {PerformanceMode::kLowPowerSaver, "low_power_saver"},
    {PerformanceMode::kExtremePowerSaver, "extreme_power_saver"},
}};
constexpr std::array<Named<GraphPriority>, 4> kPriorities = {{
    {GraphPriority::kLow, "low"},
    {GraphPriority::kNormal, "normal"},
    {GraphPriority::kNormalHigh, "normal_high"},
    {GraphPriority::kHigh, "high"},
}};
constexpr std::array<Named<Profiling>, 4> kProfilings = {{
    {Profiling::kOff, "off"},
    {Profiling::kBasic, "basic"},
    {Profiling::kDetailed, "detailed"},
    {Profiling::kLinting, "linting"},
}};

template <typename Value, std::size_t N>
Value choose(ObjectReader& reader, const char* key, const std::array<Named<Value>, N>& values) {
    std::vector<const char*> names;
    for (const auto& value : values) {
        names.push_back(value.name);
    }
    return values[reader.choice(key, names)].value;
}

std::string element_path(const std::string& path, std::size_t index) {
    return path + "[" + std::to_string(index) + "]";
}

// An array of between 1 and `most` objects, each read by `read(object, path)`.
template <typename Read>
auto read_objects(ObjectReader& parent, const char* key, std::size_t most, Read read) {
    const json& items = parent.array(key);
    if (items.empty() || items.size() > most) {
        refuse(parent.path_of(key), "wrong number of entries", std::to_string(items.size()),
               "1 to " + std::to_string(most));
    }
    std::vector<decltype(read(items[0], std::string()))> result;
    result.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        result.push_back(read(items[i], element_path(parent.path_of(key), i)));
    }
    return result;
}

std::vector<std::int32_t> read_token_ids(ObjectReader& parent, const char* key, std::uint32_t vocab_size) {
    const json& items = parent.array(key);
    const auto highest = static_cast<std::int32_t>(vocab_size - 1);
    std::vector<std::int32_t> ids;
    ids.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        ids.push_back(read_integer<std::int32_t>(items[i], element_path(parent.path_of(key), i), 0, highest));
    }
    return ids;
}

TensorSpec read_tensor(const json& object, const std::string& path) {
    ObjectReader reader(object, path);
    TensorSpec tensor;
    tensor.name = reader.string("name");
    const std::string dtype = reader.string("dtype");
    const auto known = dtype_from_name(dtype);
    if (!known) {
        refuse(reader.path_of("dtype"), "wrong value", shown(object["dtype"]),
               "int32, float16, float32, ufixed8, ufixed16, sfixed8 or sfixed16");
    }
    tensor.dtype = *known;
    const json& shape = reader.array("shape");
    if (shape.empty() || shape.size() > kMaxRank) {
        refuse(reader.path_of("shape"), "wrong rank", std::to_string(shape.size()), "1 to " + std::to_string(kMaxRank));
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
        tensor.shape.push_back(
            read_integer<std::uint32_t>(shape[i], element_path(reader.path_of("shape"), i), 1, kMaxExtent));
    }
    if (reader.has("scale") && !reader.field("scale").is_null()) {
        tensor.scale = reader.number("scale");
    }
    if (reader.has("zero_point") && !reader.field("zero_point").is_null()) {
        const IntegerRange range = range_of(tensor.dtype); // outside it no element stands for 0
        tensor.zero_point = reader.integer<std::int32_t>("zero_point", range.lowest, range.highest);
    }
    reader.finish();
    const bool encoded = tensor.scale.has_value() && tensor.zero_point.has_value();
    const bool plain = !tensor.scale.has_value() && !tensor.zero_point.has_value();
    if (is_fixed(tensor.dtype) ? !encoded : !plain) {
        refuse(path, "scale and zero_point do not go with the dtype", dtype,
               is_fixed(tensor.dtype) ? "both set" : "both null");
    }
    if (tensor.scale.has_value() && *tensor.scale <= 0) {
        refuse(path + ".scale", "wrong value", shown(object["scale"]), "a positive number");
    }
    return tensor;
}

GraphSpec read_graph(const json& object, const std::string& path) {
    ObjectReader reader(object, path);
    GraphSpec graph;
    graph.name = reader.string("name");
    graph.n_tokens = reader.integer<std::uint32_t>("n_tokens", 1, kMaxExtent);
    graph.inputs = read_objects(reader, "inputs", kMaxTensors, read_tensor);
    graph.outputs = read_objects(reader, "outputs", kMaxTensors, read_tensor);
    reader.integer<std::uint32_t>("epcontext_nodes", 0, kMaxExtent);
    reader.integer<std::uint32_t>("cpu_nodes", 0, kMaxExtent);
    reader.finish();
    return graph;
}

JobContext read_context(const json& object, const std::string& path) {
    ObjectReader reader(object, path);
    JobContext context;
    context.path = reader.string("path");
    context.sha256 = reader.sha256("sha256");
    context.n_bytes = reader.integer<std::uint64_t>("n_bytes", 1, UINT64_MAX / 2);
    context.graphs = read_objects(reader, "graphs", kMaxGraphs, read_graph);
    reader.finish();
    return context;
}

JobModel read_model(const json& object, const std::string& path) {
    ObjectReader reader(object, path);
    JobModel model;
    model.n_layers = reader.integer<std::uint32_t>("n_layers", 1, kMaxLayers);
    model.n_kv_heads = reader.integer<std::uint32_t>("n_kv_heads", 1, kMaxExtent);
    model.head_dim = reader.integer<std::uint32_t>("head_dim", 2, kMaxExtent);
    if (model.head_dim % 2 != 0) {
        refuse(reader.path_of("head_dim"), "wrong value", std::to_string(model.head_dim), "an even number");
    }
    model.vocab_size = reader.integer<std::uint32_t>("vocab_size", 1, 1U << 24);
    model.context_length = reader.integer<std::uint32_t>("context_length", 2, kMaxExtent);
    model.mask_value = reader.number("mask_value");
    if (model.mask_value >= 0) {
        refuse(reader.path_of("mask_value"), "wrong value", shown(object["mask_value"]), "a negative number");
    }
    model.eos_ids = read_token_ids(reader, "eos_ids", model.vocab_size);
    model.soc_number = reader.integer<std::uint32_t>("soc_number", 1, 1U << 16);
    model.htp_arch = reader.integer<std::uint32_t>("htp_arch", 1, 1U << 16);
    model.rope_table = reader.string("rope_table");
    model.rope_sha256 = reader.sha256("rope_sha256");
    reader.finish();
    return model;
}

void check_prompt(const Prompt& prompt, const std::string& path, const JobModel& model) {
    if (prompt.tokens.empty()) {
        refuse(path + ".tokens", "the prompt is empty", "no token", "at least 1 token");
    }
    const bool generates = prompt.mode == PromptMode::kGenerate;
    if (generates != (prompt.n_gen > 0)) {
        refuse(path + ".n_gen", "n_gen does not go with the mode", std::to_string(prompt.n_gen),
               generates ? "at least 1 to generate" : "0 to score");
    }
    if (!prompt.forced.empty() && prompt.forced.size() != prompt.n_gen) {
        refuse(path + ".forced", "wrong number of forced ids", std::to_string(prompt.forced.size()),
               "none, or n_gen = " + std::to_string(prompt.n_gen));
    }
    if (prompt.tokens.size() + prompt.n_cached > model.context_length) {
        throw JsonRefusal{Fault{
            ExitCode::kPromptTooLong,
            path,
            "prompt '" + prompt.prompt_id + "' is longer than the context",
            std::to_string(prompt.tokens.size()) + " tokens" +
                (prompt.n_cached == 0 ? "" : " behind " + std::to_string(prompt.n_cached)),
            "at most " + std::to_string(model.context_length),
            "shorten the prompt, or prepare the model with a longer context",
        }};
    }
}

Sampling read_sampling(const json& object, const std::string& path) {
    ObjectReader reader(object, path);
    Sampling sampling;
    const auto number = [&reader, &object](const char* key, double otherwise, double above, double most,
                                           const char* expected) {
        if (!reader.has(key)) {
            return otherwise;
        }
        const double value = reader.number(key);
        if (!(value > above && value <= most)) {
            refuse(reader.path_of(key), "wrong value", shown(object[key]), expected);
        }
        return value;
    };
    constexpr double kBelowZero = -std::numeric_limits<double>::denorm_min(); // nothing lies between it and 0
    sampling.temperature = number("temperature", 1, kBelowZero, 1e6, "0 (greedy) to 1000000");
    sampling.top_p = number("top_p", 1, 0, 1, "more than 0 and at most 1");
    sampling.repetition_penalty = number("repetition_penalty", 1, 0, 1e6, "more than 0 and at most 1000000");
    if (reader.has("top_k")) {
        sampling.top_k = reader.integer<std::uint32_t>("top_k", 0, 1U << 24);
    }
    if (reader.has("seed")) {
        sampling.seed = reader.integer<std::uint64_t>("seed", 0, INT64_MAX);
    }
    reader.finish();
    return sampling;
}

// What cannot go together, whatever the model.
void check_combination(const Prompt& prompt, const std::string& path) {
    const bool scores = prompt.mode == PromptMode::kScore;
    if (prompt.sampling && (scores || !prompt.forced.empty())) {
        refuse(path + ".sampling", "there is nothing to sample", scores ? "mode score" : "forced ids", "null");
    }
    if (prompt.keep_cache && (prompt.warmups != 0 || prompt.repetitions != 1)) {
        refuse(path + ".keep_cache", "a round that keeps the cache cannot be repeated",
               std::to_string(prompt.warmups) + " warmups, " + std::to_string(prompt.repetitions) + " repetitions",
               "0 warmups, 1 repetition; or the whole dialogue listed again");
    }
    if (prompt.n_cached != 0 && prompt.keep_cache) {
        refuse(path + ".n_cached", "the cache is either kept or filled", std::to_string(prompt.n_cached), "0");
    }
    if (scores && (prompt.keep_cache || prompt.n_cached != 0)) {
        refuse(path, "a score starts with an empty cache", prompt.keep_cache ? "keep_cache" : "n_cached", "neither");
    }
}

Prompt read_prompt(const json& object, const std::string& path, const JobModel& model) {
    ObjectReader reader(object, path);
    Prompt prompt;
    prompt.prompt_id = reader.string("prompt_id");
    prompt.mode = reader.choice("mode", {"generate", "score"}) == 0 ? PromptMode::kGenerate : PromptMode::kScore;
    prompt.tokens = read_token_ids(reader, "tokens", model.vocab_size);
    prompt.n_gen = reader.integer<std::uint32_t>("n_gen", 0, kMaxExtent);
    if (reader.has("forced")) {
        prompt.forced = read_token_ids(reader, "forced", model.vocab_size);
    }
    if (reader.has("ignore_eos")) {
        prompt.ignore_eos = reader.boolean("ignore_eos");
    }
    if (reader.has("stop_ids")) {
        prompt.stop_ids = read_token_ids(reader, "stop_ids", model.vocab_size);
    }
    if (reader.has("sampling") && !reader.field("sampling").is_null()) {
        prompt.sampling = read_sampling(reader.field("sampling"), reader.path_of("sampling"));
    }
    if (reader.has("keep_cache")) {
        prompt.keep_cache = reader.boolean("keep_cache");
    }
    if (reader.has("n_cached")) {
        prompt.n_cached = reader.integer<std::uint32_t>("n_cached", 0, kMaxExtent);
    }
    if (reader.has("outputs")) {
        const json& names = reader.array("outputs");
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (!names[i].is_string() || names.size() > kMaxTensors) {
                refuse(element_path(reader.path_of("outputs"), i), "wrong value", shown(names[i]), "a tensor's name");
            }
            prompt.outputs.push_back(names[i].get<std::string>());
        }
    }
    if (reader.has("pause_s")) {
        prompt.pause_s = reader.number("pause_s");
        if (!(prompt.pause_s >= 0 && prompt.pause_s <= kMaxPause)) {
            refuse(reader.path_of("pause_s"), "wrong value", shown(reader.field("pause_s")), "0 to 3600 seconds");
        }
    }
    if (reader.has("step_with")) {
        prompt.step_with = reader.choice("step_with", {"chunk", "token"}) == 0 ? StepWith::kChunk : StepWith::kToken;
    }
    if (reader.has("logits")) {
        prompt.keep_logits = reader.choice("logits", {"none", "all"}) == 1;
    }
    if (reader.has("warmups")) {
        prompt.warmups = reader.integer<std::uint32_t>("warmups", 0, kMaxRepetitions);
    }
    if (reader.has("repetitions")) {
        prompt.repetitions = reader.integer<std::uint32_t>("repetitions", 1, kMaxRepetitions);
    }
    reader.finish();
    check_prompt(prompt, path, model);
    check_combination(prompt, path);
    return prompt;
}

void check_graph_sizes(const Job& job) {
    std::set<std::uint32_t> sizes;
    for (const JobContext& context : job.contexts) {
        for (const GraphSpec& graph : context.graphs) {
            sizes.insert(graph.n_tokens); // several of a size: shards
            if (graph.n_tokens >= job.model.context_length) {
                refuse("job.contexts", "a graph takes as many tokens as the context holds",
                       "AR-" + std::to_string(graph.n_tokens),
                       "fewer than " + std::to_string(job.model.context_length));
            }
        }
    }
    if (sizes.count(1) == 0) {
        refuse("job.contexts", "no graph takes one token", "no AR-1 graph", "an AR-1 graph for decoding");
    }
    if (sizes.size() > kMaxGraphSizes) {
        refuse("job.contexts", "too many graphs", std::to_string(sizes.size()) + " sizes",
               "at most " + std::to_string(kMaxGraphSizes) + ", AR-1 among them; prepare fewer sizes of --prefill");
    }
}

JobOptions read_options(const json& object, const std::string& path) {
    ObjectReader reader(object, path);
    JobOptions options;
    if (reader.has("watchdog_s") && !reader.field("watchdog_s").is_null()) {
        options.watchdog_s = reader.number("watchdog_s");
        if (!(options.watchdog_s > 0 && options.watchdog_s <= kMaxSeconds)) {
            refuse(reader.path_of("watchdog_s"), "wrong value", shown(object["watchdog_s"]),
                   "null, or more than 0 and at most 86400");
        }
    }
    if (reader.has("heartbeat")) {
        options.heartbeat = reader.boolean("heartbeat");
    }
    if (reader.has("stamps")) {
        options.stamps = reader.boolean("stamps");
    }
    if (reader.has("pace_tps") && !reader.field("pace_tps").is_null()) {
        options.pace_tps = reader.number("pace_tps");
        if (!(options.pace_tps >= kMinPace && options.pace_tps <= kMaxPace)) {
            refuse(reader.path_of("pace_tps"), "wrong value", shown(object["pace_tps"]),
                   "null, or 0.001 to 1000000 tokens a second");
        }
    }
    if (reader.has("sleep_latency_us") && !reader.field("sleep_latency_us").is_null()) {
        options.sleep_latency_us = reader.integer<std::uint32_t>("sleep_latency_us", 1, kMaxSleepLatency);
    }
    if (reader.has("rpc_polling_us") && !reader.field("rpc_polling_us").is_null()) {
        options.rpc_polling_us = reader.integer<std::uint32_t>("rpc_polling_us", 0, kMaxRpcPolling);
    }
    if (reader.has("graph_priority") && !reader.field("graph_priority").is_null()) {
        options.graph_priority = choose(reader, "graph_priority", kPriorities);
    }
    if (reader.has("profiling")) {
        options.profiling = choose(reader, "profiling", kProfilings);
    }
    if (reader.has("prefetch")) {
        options.prefetch = reader.boolean("prefetch");
    }
    if (reader.has("memory")) {
        options.memory = reader.choice("memory", {"auto", "heap"}) == 0 ? TensorMemory::kAuto : TensorMemory::kHeap;
    }
    if (reader.has("cpu_affinity")) {
        const json& cores = reader.array("cpu_affinity");
        if (cores.size() > kMaxCores) {
            refuse(reader.path_of("cpu_affinity"), "wrong number of entries", std::to_string(cores.size()),
                   "at most " + std::to_string(kMaxCores));
        }
        for (std::size_t i = 0; i < cores.size(); ++i) {
            options.cpu_affinity.push_back(read_integer<std::uint32_t>(
                cores[i], element_path(reader.path_of("cpu_affinity"), i), 0, kMaxCores - 1));
        }
    }
    reader.finish();
    return options;
}

Job read_job(const json& document) {
    ObjectReader reader(document, "job");
    Job job;
    const std::string schema = reader.string("schema");
    if (schema != kJobSchema) {
        refuse("job.schema", "another schema", shown(document["schema"]), kJobSchema);
    }
    job.run_id = reader.string("run_id");
    job.nonce = reader.string("nonce");
    ObjectReader libraries(reader.field("libraries"), "job.libraries");
    job.backend_library = libraries.string("backend");
    job.system_library = libraries.string("system");
    libraries.finish();
    job.performance_mode = choose(reader, "performance_mode", kPerformanceModes);
    job.model = read_model(reader.field("model"), "job.model");
    job.contexts = read_objects(reader, "contexts", kMaxGraphs, read_context);
    job.prompts = read_objects(reader, "prompts", kMaxExtent, [&job](const json& object, const std::string& path) {
        return read_prompt(object, path, job.model);
    });
    if (reader.has("options")) {
        job.options = read_options(reader.field("options"), "job.options");
    }
    if (job.performance_mode == PerformanceMode::kDefault &&
        (job.options.sleep_latency_us || job.options.rpc_polling_us)) {
        refuse("job.options", "latency and polling are parts of a vote", "performance_mode default",
               "a performance mode that votes, or null");
    }
    reader.finish();
    check_graph_sizes(job);
    return job;
}

} // namespace

const char* name_of(PromptMode mode) noexcept { return mode == PromptMode::kGenerate ? "generate" : "score"; }

const char* name_of(StepWith step) noexcept { return step == StepWith::kChunk ? "chunk" : "token"; }

const char* name_of(PerformanceMode mode) noexcept { return kPerformanceModes[static_cast<std::size_t>(mode)].name; }

const char* name_of(GraphPriority priority) noexcept { return kPriorities[static_cast<std::size_t>(priority)].name; }

const char* name_of(Profiling profiling) noexcept { return kProfilings[static_cast<std::size_t>(profiling)].name; }

Result<Job> parse_job(const std::string& text) {
    try {
        return read_job(parse_json(text));
    } catch (JsonRefusal& refusal) {
        return std::move(refusal.fault);
    }
}

} // namespace snapgate
