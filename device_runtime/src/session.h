// Everything that is loaded once: libraries, device, contexts, buffers and graphs, ready to generate.
#pragma once

#include "binary_info.h"
#include "job.h"
#include "kv_cache.h"
#include "mapped_file.h"
#include "power_vote.h"
#include "qnn_library.h"
#include "qnn_objects.h"
#include "record_writer.h"
#include "result.h"
#include "rpc_memory.h"
#include "step_graph.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace snapgate {

// What goes with a load: where its records go, and who may end it.
struct Loading {
    Loading(RecordWriter& to, const std::atomic<bool>* flag = nullptr) noexcept : records(to), cancelled(flag) {}

    RecordWriter& records;
    const std::atomic<bool>* cancelled; // null: signals alone
};

// The QNN libraries and the device, opened. Members are declared in the order of opening and so freed in reverse.
class Platform {
  public:
    // Opens, besides, the library of shared memory where the options want it and the phone has it.
    // Writes a phase record for each step and the platform record. Without a SoC number (a probe) the device is
    // opened as the library chooses.
    static Result<std::unique_ptr<Platform>> open(const std::string& backend_library, const std::string& system_library,
                                                  std::optional<std::uint32_t> soc_number, PerformanceMode mode,
                                                  const JobOptions& options, const Loading& loading);

    // What was asked of the platform so far, and its answers.
    std::vector<ControlSetting>& settings() noexcept { return settings_; }

    const qnn::abi::CoreTable& table() const noexcept { return backend_library_->table(); }

    const qnn::SystemLibrary& system() const noexcept { return *system_library_; }

    const qnn::Backend& backend() const noexcept { return backend_; }

    const qnn::Device& device() const noexcept { return device_; }

    // Null where there is none; then `no_shared_memory()` says why, if it was wanted.
    const RpcMemory* shared_memory() const noexcept { return shared_memory_ ? &*shared_memory_ : nullptr; }

    const std::optional<std::string>& no_shared_memory() const noexcept { return no_shared_memory_; }

  private:
    Platform() = default;

    std::optional<RpcMemory> shared_memory_;
    std::optional<std::string> no_shared_memory_;
    std::optional<qnn::BackendLibrary> backend_library_;
    std::optional<qnn::SystemLibrary> system_library_;
    qnn::Log log_;
    qnn::Backend backend_;
    qnn::Device device_;
    qnn::PowerVote power_;
    std::vector<ControlSetting> settings_;
};

// A job's model on a platform.
class Session {
  public:
    // Verifies every file before it is used; writes phase, context, buffers and memory records.
    // TERMINATED after the phase under way when that was asked for.
    static Result<std::unique_ptr<Session>> load(const Job& job, const Loading& loading);

    KvCache& cache() noexcept { return *cache_; }

    std::vector<ControlSetting>& settings() noexcept { return platform_->settings(); }

    // A step of each size, narrowest first.
    std::vector<StepGraph>& graphs() noexcept { return graphs_; }

  private:
    // One context binary on its way from file to graphs.
    struct Binary {
        const JobContext* spec;
        MappedFile file;
        qnn::BinaryInfo info;
        std::vector<const qnn::GraphInfo*> graphs; // as in spec->graphs; into info
    };

    using Steps = std::map<std::uint32_t, std::vector<LoadedGraph>>; // by the number of tokens

    Session() = default;

    Status load_binaries(const Job& job, const Loading& loading);
    Status load_rope(const JobModel& model, const Loading& loading);
    Status create_contexts(const Loading& loading);
    Status create_graphs(const Job& job, const Loading& loading);
    Status retrieve_graphs(const Job& job, const Loading& loading, Steps& steps);
    Status create_buffers(const Job& job, const Steps& steps, const RpcMemory* shared);
    void free_buffers() noexcept;

    std::unique_ptr<Platform> platform_;
    std::vector<Binary> binaries_; // mapped until the contexts are gone
    std::optional<MappedFile> rope_file_;
    RopeReals rope_;
    std::vector<qnn::Context> contexts_; // as binaries_
    std::vector<qnn::Profile> profiles_; // of all graphs
    std::optional<KvCache> cache_;
    std::vector<StepGraph> graphs_;
    std::optional<qnn::MemoryRegistrations> registrations_; // of the memory above: given back before it is freed
};

} // namespace snapgate
