// Everything the runner writes, one struct per kind of line (schema snapgate.runner/1,
// harness/record/schema/runner_record.schema.json). Field meanings are documented in harness/record/runner.py.
#pragma once

#include "clock.h"
#include "result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snapgate {

constexpr const char* kRunnerSchema = "snapgate.runner/1";

struct StartRecord {
    std::string run_id;
    std::string nonce;
    ClockReading clock;
};

struct PlatformRecord {
    std::string provider;
    std::string core_api;
    std::string backend_api;
    std::string system_api;
    std::string build_id;
    std::string device_config;
    std::string performance_mode;
    bool performance_accepted = true;
    std::string memory;
};

struct ContextRecord {
    std::string file;
    std::uint64_t n_bytes = 0;
    std::string sha256;
    std::uint32_t dsp_arch = 0;
    std::uint32_t soc_number = 0;
    std::string blob_version;
    std::string build_id;
    std::vector<std::string> graphs;
    std::vector<std::optional<std::uint32_t>> vtcm_bytes; // as graphs
};

// One thing asked of the platform.
struct ControlSetting {
    std::string name;
    std::string asked;
    bool accepted = true;
    std::optional<std::string> in_force; // read back; nothing: the platform does not let us
    std::optional<std::uint64_t> qnn_code;
};

struct ControlRecord {
    std::vector<ControlSetting> settings;
};

struct ProfileEventRecord {
    std::string name;
    std::uint32_t type = 0;
    std::string unit;
    std::uint64_t value = 0;
    std::uint32_t depth = 0;
};

struct ProfileRecord {
    std::string prompt_id;
    std::uint32_t repetition = 0;
    bool warmup = false;
    std::string graph;
    std::string level;
    std::uint32_t position = 0;
    std::vector<ProfileEventRecord> events;
};

struct PhaseRecord {
    std::string name;
    std::string detail;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

struct BuffersRecord {
    std::uint64_t alignment_bytes = 0;
    std::uint64_t kv_pool_bytes = 0;
    std::uint64_t io_bytes = 0;
    std::uint64_t n_tensors = 0;
    bool registered = false;
    std::string memory; // "rpcmem" or "heap"
    std::uint64_t n_registered = 0;
    std::optional<std::string> fallback; // why shared memory was wanted and is not used
    std::uint64_t kv_token_bytes = 0;    // of the new keys and values that one decode step stores
    std::uint64_t kv_token_stores = 0;   // to so many places: each key element alone, the values of a head as one
};

struct MemoryRecord {
    std::string at;
    std::optional<std::uint64_t> vm_hwm_bytes;
    std::optional<std::uint64_t> vm_rss_bytes;
    std::optional<std::uint64_t> vm_swap_bytes;
    std::optional<std::uint64_t> rss_anon_bytes;
    std::optional<std::uint64_t> rss_file_bytes;
    std::int64_t monotonic_ns = 0;
};

struct PrefillChunk {
    std::uint32_t n_tokens = 0;
    std::uint32_t n_graph_tokens = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

struct LogitsFileRecord {
    std::string file;
    std::uint64_t offset_bytes = 0;
    std::uint64_t n_rows = 0;
    std::uint64_t n_columns = 0;
    std::string dtype;
    std::optional<double> scale;
    std::optional<std::int32_t> zero_point;
    std::uint64_t first_position = 0;
};

// Copies of one graph output, one a step, at an offset of a file.
struct OutputRecord {
    std::string name;
    std::string graph;
    std::string dtype;
    std::vector<std::uint32_t> shape; // of one step
    std::optional<double> scale;
    std::optional<std::int32_t> zero_point;
    std::string file;
    std::uint64_t offset_bytes = 0;
    std::vector<std::uint32_t> positions; // of the first token of each step
};

struct GenerationRecord {
    std::string prompt_id;
    std::string mode;
    std::uint32_t repetition = 0;
    bool warmup = false;
    std::string step_with;
    std::uint64_t n_prompt = 0;
    std::uint64_t n_cached = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
    std::vector<PrefillChunk> prefill;
    std::int64_t relayout_ns = 0;
    std::vector<std::int64_t> token_ns;
    std::vector<std::int32_t> token_ids;
    std::vector<std::int32_t> argmax_ids;
    std::string stop;
    std::vector<double> nll;
    std::optional<LogitsFileRecord> logits;
    std::uint64_t heap_allocations = 0;
    std::uint32_t n_carried = 0;
    std::int64_t pace_ns = 0;
    std::vector<OutputRecord> outputs;
};

struct EndRecord {
    ExitCode exit_code = ExitCode::kOk;
    std::uint64_t n_records = 0;
    ClockReading clock;
};

// One line of JSON without the line end: ASCII only, whatever bytes the strings hold.
// Of the memory, by `--bandwidth`. What it counts is in bandwidth.h.
struct BandwidthRecord {
    std::uint64_t n_bytes = 0; // read in each pass, by all threads together
    std::uint32_t n_threads = 0;
    std::optional<std::uint64_t> last_level_cache_bytes;
    std::int64_t start_ns = 0;         // of the first pass
    std::vector<std::int64_t> pass_ns; // each from the first thread's start to the last one's end
    std::uint64_t checksum = 0;
};

std::string to_line(const StartRecord& record);
std::string to_line(const PlatformRecord& record);
std::string to_line(const ContextRecord& record);
std::string to_line(const ControlRecord& record);
std::string to_line(const ProfileRecord& record);
std::string to_line(const PhaseRecord& record);
std::string to_line(const BuffersRecord& record);
std::string to_line(const MemoryRecord& record);
std::string to_line(const GenerationRecord& record);
std::string to_line(const Fault& fault);
std::string to_line(const EndRecord& record);
std::string to_line(const BandwidthRecord& record);

} // namespace snapgate
