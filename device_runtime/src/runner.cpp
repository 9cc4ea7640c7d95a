#include "runner.h"

#include "clock.h"
#include "companion.h"
#include "cpu_affinity.h"
#include "generator.h"
#include "guarded.h"
#include "job.h"
#include "log.h"
#include "logits_file.h"
#include "mapped_file.h"
#include "output_file.h"
#include "process_memory.h"
#include "progress.h"
#include "record_writer.h"
#include "session.h"
#include "signals.h"
#include "stamp_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <new>
#include <optional>

namespace snapgate {
namespace {

constexpr std::uint64_t kMaxJobBytes = 256U << 20;

Result<Job> read_job_file(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file) {
        return std::move(file).fault();
    }
    const Span<const std::byte> bytes = file->bytes();
    if (bytes.size() > kMaxJobBytes) {
        return Fault{
            ExitCode::kJobInvalid,
            path,
            "the job file is too large",
            std::to_string(bytes.size()) + " bytes",
            "at most " + std::to_string(kMaxJobBytes),
            "split the prompts over several jobs",
        };
    }
    return parse_job(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Room for the logits of the largest generation that wants them; nothing where none does.
Result<std::optional<LogitsFile>> create_logits_file(const Job& job, const StepGraph& graph,
                                                     const std::string& folder) {
    std::uint64_t max_rows = 0;
    for (const Prompt& prompt : job.prompts) {
        if (prompt.keep_logits) {
            max_rows = std::max(max_rows, max_logits_rows(prompt));
        }
    }
    if (max_rows == 0) {
        return std::optional<LogitsFile>();
    }
    max_rows = std::min<std::uint64_t>(max_rows, job.model.context_length); // the context is full then
    const LogitsRow row = graph.logits(0);
    auto file = LogitsFile::create(folder, max_rows, row.n_columns * row.encoding.element_bytes());
    if (!file) {
        return std::move(file).fault();
    }
    return std::optional<LogitsFile>(*std::move(file));
}

Result<StampFile> create_stamp_file(const Job& job, const std::string& folder) {
    if (!job.options.stamps) {
        return StampFile();
    }
    std::uint64_t most = 0;
    for (const Prompt& prompt : job.prompts) {
        most = std::max(most, max_stamps(prompt));
    }
    return StampFile::create(folder, most);
}

// No file where no prompt wants one.
Result<OutputFile> create_output_file(const Job& job, Session& session, const std::string& folder) {
    for (const Prompt& prompt : job.prompts) {
        if (!prompt.outputs.empty()) {
            return OutputFile::create(folder, job.prompts, session.graphs());
        }
    }
    return OutputFile();
}

Status write_profiles(const Job& job, const GenerationRecord& generation, Session& session, RecordWriter& records) {
    if (job.options.profiling == Profiling::kOff) {
        return {};
    }
    for (const StepGraph& graph : session.graphs()) {
        for (ProfileRecord& record : graph.read_profiles()) {
            record.prompt_id = generation.prompt_id;
            record.repetition = generation.repetition;
            record.warmup = generation.warmup;
            record.level = name_of(job.options.profiling);
            SNAPGATE_TRY(records.write(record));
        }
    }
    return {};
}

// The last phase of the start: what a graph executes for the first time, a library may still set up.
PhaseRecord first_execute(const GenerationRecord& generation, Session& session) {
    const PrefillChunk& chunk = generation.prefill.front(); // a prompt has a token
    PhaseRecord phase{"first_execute", "", chunk.start_ns, chunk.end_ns};
    for (const StepGraph& graph : session.graphs()) {
        if (graph.n_tokens() == chunk.n_graph_tokens) {
            phase.detail = graph.name();
        }
    }
    return phase;
}

// At rest until the next request: the model stays loaded, and nothing is asked of the device. A stop ends it.
Status rest(double seconds) {
    if (seconds <= 0) {
        return {};
    }
    const Unwatched until_due;
    const std::int64_t due_ns = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
    const timespec due{static_cast<time_t>(due_ns / 1'000'000'000), static_cast<long>(due_ns % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) == EINTR) {
        SNAPGATE_TRY(terminated_if_asked("the pause before a prompt"));
    }
    return {};
}

Status run_prompts(const Job& job, Session& session, const std::string& folder, RecordWriter& records) {
    auto logits_file = create_logits_file(job, session.graphs().front(), folder);
    if (!logits_file) {
        return std::move(logits_file).fault();
    }
    auto stamps = create_stamp_file(job, folder);
    if (!stamps) {
        return std::move(stamps).fault();
    }
    auto output_file = create_output_file(job, session, folder);
    if (!output_file) {
        return std::move(output_file).fault();
    }
    const Sinks sinks{&*stamps, logits_file->has_value() ? &**logits_file : nullptr, &*output_file};
    Generator generator(job.model, session.graphs(), session.cache(), job.options.pace_tps, sinks);
    for (std::size_t index = 0; index < job.prompts.size(); ++index) {
        const Prompt& prompt = job.prompts[index];
        for (std::uint32_t i = 0; i < prompt.warmups + prompt.repetitions; ++i) {
            const bool warmup = i < prompt.warmups;
            const std::uint32_t repetition = warmup ? i : i - prompt.warmups;
            SNAPGATE_TRY(rest(prompt.pause_s));
            stamps->begin(static_cast<std::uint32_t>(index), repetition, warmup);
            auto generation = generator.run(prompt, repetition, warmup);
            if (!generation) {
                return std::move(generation).fault();
            }
            if (index == 0 && i == 0) {
                SNAPGATE_TRY(records.write(first_execute(*generation, session)));
            }
            SNAPGATE_TRY(records.write(*generation));
            SNAPGATE_TRY(write_profiles(job, *generation, session, records));
            stamps->clear();
        }
    }
    set_progress("end", 0, Watch::kNo);
    return records.write(read_process_memory("end"));
}

// By way of the stack: the kernel may not take the address of memory that a driver handed out.
bool write_copied(int fd, Span<const std::byte> bytes) noexcept {
    std::array<std::byte, 16384> part{};
    for (std::size_t done = 0; done < bytes.size();) {
        const std::size_t n = std::min(part.size(), bytes.size() - done);
        std::memcpy(part.data(), bytes.data() + done, n);
        if (!write_fully(fd, part.data(), n)) {
            return false;
        }
        done += n;
    }
    return true;
}

Status dump_cache(KvCache& cache, const std::string& folder) {
    const std::string path = folder + "/kv_cache.bin";
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    bool written = static_cast<bool>(file);
    cache.use_columns(cache.max_columns());
    for (std::size_t layer = 0; written && layer < cache.n_layers(); ++layer) {
        for (const Span<const std::byte> rows : {cache.key_rows(layer), cache.value_rows(layer)}) {
            written = written && write_copied(file.get(), rows);
        }
    }
    if (!written) {
        return Fault{
            ExitCode::kIoFailed,
            path,
            "the cache cannot be written",
            std::strerror(errno),
            "a writable folder with space left",
            "free space on the device",
        };
    }
    return {};
}

// The session and all it holds are gone when this returns: power votes are withdrawn before the end record.
Status run(const Job& job, const RunJob& command, RecordWriter& records) {
    const Companion companion({job.options.watchdog_s, job.options.heartbeat}, records);
    auto session = Session::load(job, records);
    if (!session) {
        return std::move(session).fault();
    }
    if (!job.options.cpu_affinity.empty()) {
        (*session)->settings().push_back(bind_to_cores(job.options.cpu_affinity));
    }
    SNAPGATE_TRY(records.write(ControlRecord{(*session)->settings()}));
    SNAPGATE_TRY(run_prompts(job, **session, command.folder, records));
    return command.dump_cache ? dump_cache((*session)->cache(), command.folder) : Status();
}

// Writes the last records. A record that cannot be written decides the exit code only if nothing else went wrong.
ExitCode write_end(const Status& outcome, RecordWriter& records) {
    ExitCode code = ExitCode::kOk;
    if (!outcome) {
        const Fault& fault = outcome.fault();
        code = fault.code;
        log_line(name_of(code), fault.where + ": " + fault.what + "; found: " + fault.found +
                                    "; expected: " + fault.expected + "; next step: " + fault.next_step);
        if (!records.write(fault)) {
            log_line("error", "the error record could not be written");
        }
    }
    const Status end = records.write(EndRecord{code, records.n_written(), read_clocks()});
    if (!end) {
        log_line("error", "the end record could not be written");
        return code == ExitCode::kOk ? end.fault().code : code;
    }
    return code;
}

// Even memory that is short when the last records are made does not change how the process ends.
ExitCode finish(const Status& outcome, RecordWriter& records) noexcept {
    try {
        return write_end(outcome, records);
    } catch (const std::exception& error) {
        log_line("error", error.what());
    } catch (...) {
        log_line("error", "the last records could not be made");
    }
    return outcome ? ExitCode::kInternal : outcome.fault().code;
}

} // namespace

ExitCode run_job_file(const RunJob& command, FileDescriptor stdout_fd) {
    RecordWriter records(std::move(stdout_fd));
    const Status outcome = guarded<Status>([&]() -> Status {
        const Status folder_status = records.open_folder(command.folder);
        auto job = read_job_file(command.job_file);
        StartRecord start;
        start.clock = read_clocks();
        if (job) {
            start.run_id = job->run_id;
            start.nonce = job->nonce;
        }
        SNAPGATE_TRY(records.write(start));
        if (!folder_status) {
            return folder_status.fault();
        }
        if (!job) {
            return std::move(job).fault();
        }
        return run(*job, command, records);
    });
    return finish(outcome, records);
}

ExitCode probe(const Probe& command, FileDescriptor stdout_fd) {
    RecordWriter records(std::move(stdout_fd));
    const Status outcome = guarded<Status>([&]() -> Status {
        StartRecord start;
        start.clock = read_clocks();
        SNAPGATE_TRY(records.write(start));
        auto platform = Platform::open(command.backend_library, command.system_library, std::nullopt,
                                       PerformanceMode::kDefault, JobOptions(), records);
        if (!platform) {
            return std::move(platform).fault();
        }
        return {};
    });
    return finish(outcome, records);
}

} // namespace snapgate
