#include "records.h"

#include "build_info.h"
#include "qnn_codes.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace snapgate {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json to_json(const ClockReading& clock) {
    return {
        {"monotonic_ns", clock.monotonic_ns}, {"boottime_ns", clock.boottime_ns}, {"realtime_ns", clock.realtime_ns}};
}

Json to_json(const PrefillChunk& chunk) {
    return {{"n_tokens", chunk.n_tokens},
            {"n_graph_tokens", chunk.n_graph_tokens},
            {"start_ns", chunk.start_ns},
            {"end_ns", chunk.end_ns}};
}

Json to_json(const LogitsFileRecord& logits) {
    return {{"file", logits.file},
            {"offset_bytes", logits.offset_bytes},
            {"n_rows", logits.n_rows},
            {"n_columns", logits.n_columns},
            {"dtype", logits.dtype},
            {"scale", or_null(logits.scale)},
            {"zero_point", or_null(logits.zero_point)},
            {"first_position", logits.first_position}};
}

Json to_json(const OutputRecord& output) {
    return {{"name", output.name},
            {"graph", output.graph},
            {"dtype", output.dtype},
            {"shape", output.shape},
            {"scale", or_null(output.scale)},
            {"zero_point", or_null(output.zero_point)},
            {"file", output.file},
            {"offset_bytes", output.offset_bytes},
            {"positions", output.positions}};
}

Json to_json(const ControlSetting& setting) {
    return {{"name", setting.name},
            {"asked", setting.asked},
            {"accepted", setting.accepted},
            {"in_force", or_null(setting.in_force)},
            {"qnn_code", or_null(setting.qnn_code)},
            {"qnn_name", setting.qnn_code ? Json(qnn::error_name(*setting.qnn_code)) : Json(nullptr)}};
}

Json to_json(const ProfileEventRecord& event) {
    return {{"name", event.name},
            {"type", event.type},
            {"unit", event.unit},
            {"value", event.value},
            {"depth", event.depth}};
}

template <typename T>
Json to_json(const std::vector<T>& items) {
    Json array = Json::array();
    for (const T& item : items) {
        array.push_back(to_json(item));
    }
    return array;
}

// Bytes that are not UTF-8 become U+FFFD; everything outside ASCII is escaped.
std::string line_of(const Json& record) { return record.dump(-1, ' ', true, Json::error_handler_t::replace); }

} // namespace

std::string to_line(const StartRecord& record) {
    return line_of({{"type", "start"},
                    {"schema", kRunnerSchema},
                    {"run_id", record.run_id},
                    {"nonce", record.nonce},
                    {"runner_version", runner_version()},
                    {"abi", abi_name()},
                    {"compiler", compiler()},
                    {"build_type", build_type()},
                    {"pid", getpid()},
                    {"clock", to_json(record.clock)}});
}

std::string to_line(const PlatformRecord& record) {
    return line_of({{"type", "platform"},
                    {"provider", record.provider},
                    {"core_api", record.core_api},
                    {"backend_api", record.backend_api},
                    {"system_api", record.system_api},
                    {"build_id", record.build_id},
                    {"device_config", record.device_config},
                    {"performance_mode", record.performance_mode},
                    {"performance_accepted", record.performance_accepted},
                    {"memory", record.memory}});
}

std::string to_line(const ContextRecord& record) {
    Json vtcm_bytes = Json::array();
    for (const auto& bytes : record.vtcm_bytes) {
        vtcm_bytes.push_back(or_null(bytes));
    }
    return line_of({{"type", "context"},
                    {"file", record.file},
                    {"n_bytes", record.n_bytes},
                    {"sha256", record.sha256},
                    {"dsp_arch", record.dsp_arch},
                    {"soc_number", record.soc_number},
                    {"blob_version", record.blob_version},
                    {"build_id", record.build_id},
                    {"graphs", record.graphs},
                    {"vtcm_bytes", vtcm_bytes}});
}

std::string to_line(const BandwidthRecord& record) {
    return line_of({{"type", "bandwidth"},
                    {"n_bytes", record.n_bytes},
                    {"n_threads", record.n_threads},
                    {"last_level_cache_bytes", or_null(record.last_level_cache_bytes)},
                    {"start_ns", record.start_ns},
                    {"pass_ns", record.pass_ns}});
}

std::string to_line(const ControlRecord& record) {
    return line_of({{"type", "control"}, {"settings", to_json(record.settings)}});
}

std::string to_line(const ProfileRecord& record) {
    return line_of({{"type", "profile"},
                    {"prompt_id", record.prompt_id},
                    {"repetition", record.repetition},
                    {"warmup", record.warmup},
                    {"graph", record.graph},
                    {"level", record.level},
                    {"position", record.position},
                    {"events", to_json(record.events)}});
}

std::string to_line(const PhaseRecord& record) {
    return line_of({{"type", "phase"},
                    {"name", record.name},
                    {"detail", record.detail},
                    {"start_ns", record.start_ns},
                    {"end_ns", record.end_ns}});
}

std::string to_line(const BuffersRecord& record) {
    return line_of({{"type", "buffers"},
                    {"alignment_bytes", record.alignment_bytes},
                    {"kv_pool_bytes", record.kv_pool_bytes},
                    {"io_bytes", record.io_bytes},
                    {"n_tensors", record.n_tensors},
                    {"registered", record.registered},
                    {"memory", record.memory},
                    {"n_registered", record.n_registered},
                    {"fallback", or_null(record.fallback)},
                    {"kv_token_bytes", record.kv_token_bytes},
                    {"kv_token_stores", record.kv_token_stores}});
}

std::string to_line(const MemoryRecord& record) {
    return line_of({{"type", "memory"},
                    {"at", record.at},
                    {"vm_hwm_bytes", or_null(record.vm_hwm_bytes)},
                    {"vm_rss_bytes", or_null(record.vm_rss_bytes)},
                    {"vm_swap_bytes", or_null(record.vm_swap_bytes)},
                    {"rss_anon_bytes", or_null(record.rss_anon_bytes)},
                    {"rss_file_bytes", or_null(record.rss_file_bytes)},
                    {"monotonic_ns", record.monotonic_ns}});
}

std::string to_line(const GenerationRecord& record) {
    return line_of({{"type", "generation"},
                    {"prompt_id", record.prompt_id},
                    {"mode", record.mode},
                    {"repetition", record.repetition},
                    {"warmup", record.warmup},
                    {"step_with", record.step_with},
                    {"n_prompt", record.n_prompt},
                    {"n_cached", record.n_cached},
                    {"start_ns", record.start_ns},
                    {"end_ns", record.end_ns},
                    {"prefill", to_json(record.prefill)},
                    {"relayout_ns", record.relayout_ns},
                    {"token_ns", record.token_ns},
                    {"token_ids", record.token_ids},
                    {"argmax_ids", record.argmax_ids},
                    {"stop", record.stop},
                    {"nll", record.nll},
                    {"logits", record.logits ? to_json(*record.logits) : Json(nullptr)},
                    {"heap_allocations", record.heap_allocations},
                    {"n_carried", record.n_carried},
                    {"pace_ns", record.pace_ns},
                    {"outputs", to_json(record.outputs)}});
}

std::string to_line(const Fault& fault) {
    Json code = nullptr;
    Json name = nullptr;
    if (fault.qnn_code) {
        code = *fault.qnn_code;
        name = qnn::error_name(*fault.qnn_code);
    }
    return line_of({{"type", "error"},
                    {"error", name_of(fault.code)},
                    {"exit_code", static_cast<int>(fault.code)},
                    {"where", fault.where},
                    {"what", fault.what},
                    {"found", fault.found},
                    {"expected", fault.expected},
                    {"next_step", fault.next_step},
                    {"qnn_code", code},
                    {"qnn_name", name}});
}

std::string to_line(const EndRecord& record) {
    return line_of({{"type", "end"},
                    {"exit_code", static_cast<int>(record.exit_code)},
                    {"n_records", record.n_records},
                    {"clock", to_json(record.clock)}});
}

} // namespace snapgate
