// The job: what the harness asks of this process (schema snapgate.job/1, harness/record/schema/job.schema.json).
#pragma once

#include "result.h"
#include "sampler.h"
#include "tensor_spec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snapgate {

constexpr const char* kJobSchema = "snapgate.job/1";

// One AR-N graph: it takes `n_tokens` tokens a step.
struct GraphSpec {
    std::string name;
    std::uint32_t n_tokens = 0;
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
};

// Steps of so many sizes, AR-1 among them, may be in a job.
constexpr std::size_t kMaxGraphSizes = 8;

struct JobContext {
    std::string path;
    std::string sha256;
    std::uint64_t n_bytes = 0;
    std::vector<GraphSpec> graphs;
};

struct JobModel {
    std::uint32_t n_layers = 0;
    std::uint32_t n_kv_heads = 0;
    std::uint32_t head_dim = 0;
    std::uint32_t vocab_size = 0;
    std::uint32_t context_length = 0;
    double mask_value = 0;
    std::vector<std::int32_t> eos_ids;
    std::uint32_t soc_number = 0;
    std::uint32_t htp_arch = 0;
    std::string rope_table; // float32: cos (context_length, head_dim / 2), then sin of the same shape
    std::string rope_sha256;
};

enum class PromptMode { kGenerate, kScore };
enum class StepWith { kChunk, kToken };

const char* name_of(PromptMode mode) noexcept;
const char* name_of(StepWith step) noexcept;

struct Prompt {
    std::string prompt_id;
    PromptMode mode = PromptMode::kGenerate;
    std::vector<std::int32_t> tokens;
    std::uint32_t n_gen = 0;          // 0 exactly when the mode is score
    std::vector<std::int32_t> forced; // empty, or n_gen ids fed instead of the choice
    bool ignore_eos = false;
    std::vector<std::int32_t> stop_ids; // besides the model's eos_ids
    std::optional<Sampling> sampling;   // nothing: greedy
    bool keep_cache = false;            // go on behind what the prompt before left in the cache
    std::uint32_t n_cached = 0;         // tokens that KvCache::fill puts into the cache first
    std::vector<std::string> outputs;   // names of graph outputs to be dumped
    double pause_s = 0;                 // at rest before each generation
    StepWith step_with = StepWith::kChunk;
    bool keep_logits = false;
    std::uint32_t warmups = 0;
    std::uint32_t repetitions = 1;
};

// kDefault: no vote. The others from the highest clocks to the lowest (power_vote.cpp).
enum class PerformanceMode {
    kDefault,
    kBurst,
    kSustainedHighPerformance,
    kHighPerformance,
    kBalanced,
    kLowBalanced,
    kHighPowerSaver,
    kPowerSaver,
    kLowPowerSaver,
    kExtremePowerSaver,
};

enum class GraphPriority { kLow, kNormal, kNormalHigh, kHigh };
enum class Profiling { kOff, kBasic, kDetailed, kLinting };

// kAuto: memory shared with the DSP where the phone has it.
enum class TensorMemory { kAuto, kHeap };

const char* name_of(PerformanceMode mode) noexcept;
const char* name_of(GraphPriority priority) noexcept;
const char* name_of(Profiling profiling) noexcept;

// How the process is to behave, whatever it runs.
struct JobOptions {
    double watchdog_s = 0; // longest that one load phase or graph execution may take; 0: any time
    bool heartbeat = true;
    bool stamps = true;                            // stamps.bin
    double pace_tps = 0;                           // decode steps begin at most so often; 0: as soon as they can
    std::optional<std::uint32_t> sleep_latency_us; // instead of the performance mode's own
    std::optional<std::uint32_t> rpc_polling_us;   // likewise; 0: no vote
    std::optional<GraphPriority> graph_priority;   // nothing: the library's default
    Profiling profiling = Profiling::kOff;
    bool prefetch = true; // context binaries are asked for while the device opens
    TensorMemory memory = TensorMemory::kAuto;
    std::vector<std::uint32_t> cpu_affinity; // cores of the thread that works; empty: any
};

struct Job {
    std::string run_id;
    std::string nonce;
    std::string backend_library;
    std::string system_library;
    PerformanceMode performance_mode = PerformanceMode::kDefault;
    JobModel model;
    std::vector<JobContext> contexts;
    std::vector<Prompt> prompts;
    JobOptions options;
};

// JOB_INVALID names the JSON path of the first thing wrong: an unknown, missing or repeated field, a wrong type, a
// number out of range, an id outside the vocabulary. PROMPT_TOO_LONG: a prompt has more tokens than the context.
Result<Job> parse_job(const std::string& text);

} // namespace snapgate
