#include "session.h"

#include "clock.h"
#include "file_prefetch.h"
#include "graph_shape.h"
#include "library_builds.h"
#include "log.h"
#include "process_memory.h"
#include "progress.h"
#include "qnn_codes.h"
#include "signals.h"
#include "verify.h"

#include <utility>

namespace snapgate {
namespace {

// Runs one load phase and records how long it took, unless a stop was asked for. A phase that fails leaves no record;
// the error says where.
template <typename Work>
auto timed_phase(const Loading& loading, const char* name, const std::string& detail, Work work) -> decltype(work()) {
    SNAPGATE_TRY(terminated_if_asked(name));
    if (loading.cancelled != nullptr && loading.cancelled->load(std::memory_order_relaxed)) {
        return Fault{
            ExitCode::kTerminated, name,         "the load was cancelled", "a call of cancel",
            "to finish the load",  "load again",
        };
    }
    set_progress(name, 0, Watch::kYes);
    PhaseRecord phase{name, detail, monotonic_ns(), 0};
    auto result = work();
    phase.end_ns = monotonic_ns();
    if (result) {
        SNAPGATE_TRY(loading.records.write(phase));
    }
    return result;
}

ContextRecord context_record(const JobContext& spec, std::size_t n_bytes, const qnn::BinaryInfo& info) {
    ContextRecord record{
        spec.path,     n_bytes, spec.sha256, info.dsp_arch.value_or(0), info.soc_number.value_or(0), info.blob_version,
        info.build_id, {},      {}};
    for (const qnn::GraphInfo& graph : info.graphs) {
        record.graphs.push_back(graph.name);
        record.vtcm_bytes.push_back(graph.vtcm_bytes);
    }
    return record;
}

KvElement kv_element(const TensorSpec& spec) noexcept {
    const Encoding encoding = encoding_of(spec);
    KvElement element{encoding.element_bytes(), encoding.encode(0.0F), {}};
    for (std::size_t i = 0; i < kPatternSize; ++i) {
        element.pattern[i] = encoding.encode(pattern_value(i));
    }
    return element;
}

std::string reason_of(const Fault& fault) { return fault.where + ": " + fault.what + ": " + fault.found; }

std::vector<std::string> paths_of(const Job& job) {
    std::vector<std::string> paths;
    for (const JobContext& context : job.contexts) {
        paths.push_back(context.path);
    }
    return paths;
}

// Whether the job contradicts itself: checked before any library is opened.
Status check_job_graphs(const Job& job) {
    std::vector<GraphTensors> all;
    for (const Shards& step : steps_of(job.contexts)) {
        auto tensors = find_tensors(step, job.model);
        if (!tensors) {
            return std::move(tensors).fault();
        }
        all.push_back(*std::move(tensors));
    }
    return check_shared_encodings(all);
}

} // namespace

Result<std::unique_ptr<Platform>> Platform::open(const std::string& backend_library, const std::string& system_library,
                                                 std::optional<std::uint32_t> soc_number, PerformanceMode mode,
                                                 const JobOptions& options, const Loading& loading) {
    std::unique_ptr<Platform> platform(new Platform());
    SNAPGATE_TRY(timed_phase(loading, "open_libraries", backend_library, [&]() -> Status {
        auto backend = qnn::BackendLibrary::open(backend_library);
        if (!backend) {
            return std::move(backend).fault();
        }
        platform->backend_library_.emplace(*std::move(backend));
        auto system = qnn::SystemLibrary::open(system_library);
        if (!system) {
            return std::move(system).fault();
        }
        platform->system_library_.emplace(*std::move(system));
        if (options.memory == TensorMemory::kAuto) {
            auto shared = RpcMemory::open(kRpcLibrary);
            if (shared) {
                platform->shared_memory_.emplace(*std::move(shared));
            } else {
                platform->no_shared_memory_ = reason_of(shared.fault());
            }
        }
        return {};
    }));
    const qnn::abi::CoreTable& table = platform->table();
    SNAPGATE_TRY(timed_phase(loading, "backend", "", [&]() -> Status {
        platform->log_ = qnn::create_log(table);
        auto backend = qnn::create_backend(table, platform->log_);
        if (!backend) {
            return std::move(backend).fault();
        }
        platform->backend_ = *std::move(backend);
        return {};
    }));
    const std::string device_config = soc_number ? "soc " + std::to_string(*soc_number) : "library default";
    SNAPGATE_TRY(timed_phase(loading, "device", device_config, [&]() -> Status {
        auto device = qnn::create_device(table, platform->log_, soc_number);
        if (!device) {
            return std::move(device).fault();
        }
        platform->device_ = *std::move(device);
        platform->power_ = qnn::PowerVote::cast(table, mode, options, platform->settings_);
        return {};
    }));
    const qnn::BackendLibrary& library = *platform->backend_library_;
    SNAPGATE_TRY(timed_phase(loading, "verify", "builds", [&] { return verify_library_builds(library.build_id()); }));
    bool accepted = true; // of the vote: nothing else has been asked yet
    for (const ControlSetting& setting : platform->settings_) {
        accepted = accepted && setting.accepted;
    }
    SNAPGATE_TRY(loading.records.write(PlatformRecord{library.provider_name(), library.core_version(),
                                                      library.backend_version(), platform->system().version(),
                                                      library.build_id(), device_config, name_of(mode), accepted,
                                                      platform->shared_memory() != nullptr ? "rpcmem" : "heap"}));
    return platform;
}

Result<std::unique_ptr<Session>> Session::load(const Job& job, const Loading& loading) {
    SNAPGATE_TRY(check_job_graphs(job));
    std::unique_ptr<Session> session(new Session());
    std::optional<FilePrefetch> prefetch;
    if (job.options.prefetch) {
        prefetch.emplace(paths_of(job));
    }
    auto platform = Platform::open(job.backend_library, job.system_library, job.model.soc_number, job.performance_mode,
                                   job.options, loading);
    if (!platform) {
        return std::move(platform).fault();
    }
    session->platform_ = *std::move(platform);
    SNAPGATE_TRY(session->load_binaries(job, loading));
    SNAPGATE_TRY(session->load_rope(job.model, loading));
    prefetch.reset();
    SNAPGATE_TRY(session->create_contexts(loading));
    SNAPGATE_TRY(session->create_graphs(job, loading));
    SNAPGATE_TRY(loading.records.write(read_process_memory("after_load")));
    return session;
}

Status Session::load_binaries(const Job& job, const Loading& loading) {
    for (const JobContext& spec : job.contexts) {
        auto file = timed_phase(loading, "read", spec.path, [&] { return MappedFile::open(spec.path); });
        if (!file) {
            return std::move(file).fault();
        }
        Binary binary{&spec, *std::move(file), {}, {}};
        const auto verify = [&]() -> Status {
            SNAPGATE_TRY(verify_content(spec.path, binary.file.bytes(), spec.n_bytes, spec.sha256));
            auto info = qnn::read_binary_info(platform_->system(), binary.file.bytes(), spec.path);
            if (!info) {
                return std::move(info).fault();
            }
            binary.info = *std::move(info);
            return verify_target(spec.path, binary.info, job.model);
        };
        SNAPGATE_TRY(timed_phase(loading, "verify", spec.path, verify));
        SNAPGATE_TRY(loading.records.write(context_record(spec, binary.file.bytes().size(), binary.info)));
        binaries_.push_back(std::move(binary));
    }
    for (Binary& binary : binaries_) {
        for (const GraphSpec& graph : binary.spec->graphs) {
            auto info = verify_graph(binary.spec->path, binary.info, graph);
            if (!info) {
                return std::move(info).fault();
            }
            binary.graphs.push_back(*info);
        }
    }
    return {};
}

Status Session::load_rope(const JobModel& model, const Loading& loading) {
    auto file = timed_phase(loading, "read", model.rope_table, [&] { return MappedFile::open(model.rope_table); });
    if (!file) {
        return std::move(file).fault();
    }
    rope_file_.emplace(*std::move(file));
    const Span<const std::byte> bytes = rope_file_->bytes();
    const std::uint64_t half = static_cast<std::uint64_t>(model.context_length) * (model.head_dim / 2) * sizeof(float);
    SNAPGATE_TRY(timed_phase(loading, "verify", model.rope_table,
                             [&] { return verify_content(model.rope_table, bytes, 2 * half, model.rope_sha256); }));
    rope_ = {bytes.subspan(0, half), bytes.subspan(half, half)};
    return {};
}

Status Session::create_contexts(const Loading& loading) {
    for (const Binary& binary : binaries_) {
        const std::string& path = binary.spec->path;
        auto context = timed_phase(loading, "context_create", path, [&] {
            return qnn::create_context(platform_->table(), platform_->backend(), platform_->device(),
                                       binary.file.bytes(), path);
        });
        if (!context) {
            return std::move(context).fault();
        }
        contexts_.push_back(*std::move(context));
    }
    return {};
}

Status Session::retrieve_graphs(const Job& job, const Loading& loading, Steps& steps) {
    std::vector<ControlSetting>& settings = platform_->settings();
    for (std::size_t i = 0; i < binaries_.size(); ++i) {
        const std::vector<GraphSpec>& specs = binaries_[i].spec->graphs;
        for (std::size_t j = 0; j < specs.size(); ++j) {
            auto handle = timed_phase(loading, "graph_retrieve", specs[j].name, [&] {
                return qnn::retrieve_graph(platform_->table(), contexts_[i], specs[j].name);
            });
            if (!handle) {
                return std::move(handle).fault();
            }
            if (job.options.graph_priority) {
                settings.push_back(
                    qnn::set_priority(platform_->table(), *handle, specs[j].name, *job.options.graph_priority));
            }
            profiles_.push_back(qnn::create_profile(platform_->table(), platform_->backend(), job.options.profiling,
                                                    specs[j].name, settings));
            steps[specs[j].n_tokens].push_back(
                {*handle, &specs[j], binaries_[i].graphs[j], contexts_[i].get(), profiles_.back().get()});
        }
    }
    return {};
}

// All of it in one kind of memory: what is half registered is hard to reason about.
Status Session::create_buffers(const Job& job, const Steps& steps, const RpcMemory* shared) {
    auto tensors = find_tensors(steps_of(job.contexts)[0], job.model); // encodings are the same in every step
    if (!tensors) {
        return std::move(tensors).fault();
    }
    std::vector<KvLayerElements> layers;
    for (std::size_t layer = 0; layer < job.model.n_layers; ++layer) {
        layers.push_back({kv_element(*tensors->past_keys[layer]), kv_element(*tensors->past_values[layer])});
    }
    auto cache = KvCache::create(
        {job.model.n_kv_heads, job.model.head_dim, job.model.context_length, job.model.context_length - 1}, layers,
        shared);
    if (!cache) {
        return std::move(cache).fault();
    }
    cache_.emplace(*std::move(cache));
    registrations_.emplace(platform_->table());
    for (const auto& [n_tokens, graphs] : steps) {
        auto graph =
            StepGraph::create(platform_->table(), graphs, job.model, rope_, *cache_, {shared, &*registrations_});
        if (!graph) {
            return std::move(graph).fault();
        }
        graphs_.push_back(*std::move(graph));
    }
    return {};
}

void Session::free_buffers() noexcept {
    registrations_.reset();
    graphs_.clear();
    cache_.reset();
}

Status Session::create_graphs(const Job& job, const Loading& loading) {
    Steps steps;
    SNAPGATE_TRY(retrieve_graphs(job, loading, steps));
    const RpcMemory* shared = platform_->shared_memory();
    std::optional<std::string> fallback = platform_->no_shared_memory();
    SNAPGATE_TRY(timed_phase(loading, "buffers", "", [&]() -> Status {
        if (shared != nullptr) {
            const Status status = create_buffers(job, steps, shared);
            if (status) {
                return {};
            }
            fallback = reason_of(status.fault());
            log_line("warning", "tensors lie in plain memory: " + *fallback);
            shared = nullptr;
            free_buffers();
        }
        return create_buffers(job, steps, nullptr);
    }));

    BuffersRecord buffers{kTensorAlignment,
                          cache_->pool_bytes(),
                          0,
                          0,
                          shared != nullptr,
                          shared != nullptr ? "rpcmem" : "heap",
                          registrations_->size(),
                          fallback,
                          0,
                          0};
    auto decode = find_tensors(steps_of(job.contexts)[0], job.model);
    if (!decode) {
        return std::move(decode).fault();
    }
    for (std::size_t layer = 0; layer < job.model.n_layers; ++layer) {
        buffers.kv_token_bytes += decode->keys[layer]->n_bytes().value_or(0);
        buffers.kv_token_bytes += decode->values[layer]->n_bytes().value_or(0);
        buffers.kv_token_stores += std::uint64_t{job.model.n_kv_heads} * (job.model.head_dim + 1U);
    }
    for (const StepGraph& graph : graphs_) {
        buffers.io_bytes += graph.io_bytes();
        buffers.n_tensors += graph.n_tensors();
    }
    return loading.records.write(buffers);
}

} // namespace snapgate
