#include "companion.h"

#include "clock.h"
#include "fixed_text.h"
#include "progress.h"
#include "signals.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <unistd.h>

namespace snapgate {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// Often enough to end a hung call within a quarter of its deadline, and no oftener.
std::chrono::nanoseconds period_of(const CompanionOptions& options) noexcept {
    const double seconds = options.watchdog_s > 0 ? std::clamp(options.watchdog_s / 4, 0.01, 1.0) : 1.0;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

void beat(const Progress& now, RecordWriter& records) noexcept {
    FixedText line;
    line.put(R"({"type": "heartbeat", "phase": ")").put(now.phase);
    line.put(R"(", "step": )").put(now.step);
    line.put(R"(, "monotonic_ns": )").put(static_cast<unsigned long>(monotonic_ns())).put("}\n");
    records.write_heartbeat(line);
}

// The hung thread may hold any lock of the library or of the heap: nothing here takes one or allocates.
[[noreturn]] void end_hung_process(const Progress& hung, double deadline_s, RecordWriter& records) noexcept {
    const auto deadline_ms = static_cast<unsigned long>(deadline_s * 1000);
    FixedText error;
    error.put(R"({"type": "error", "error": "HUNG", "exit_code": )").put(static_cast<unsigned long>(ExitCode::kHung));
    error.put(R"(, "where": ")").put(hung.phase).put(", step ").put(hung.step);
    error.put(R"(", "what": "a call did not return", "found": "no return after )").put(deadline_ms);
    error.put(R"( ms", "expected": "a return within watchdog_s of the job", "next_step": "look for a crashed DSP in )");
    error.put(R"(the phone's log, then run the job once more", "qnn_code": null, "qnn_name": null})");
    error.put("\n");
    records.write_last_words(error, ExitCode::kHung);
    FixedText line;
    line.put("snapgate-runner: HUNG: no return after ").put(deadline_ms).put(" ms during ").put(hung.phase);
    line.put(", step ").put(hung.step).put("\n");
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    run_emergency_release();
    _exit(static_cast<int>(ExitCode::kHung));
}

} // namespace

Companion::Companion(const CompanionOptions& options, RecordWriter& records) : options_(options), records_(records) {
    if (options_.watchdog_s > 0 || options_.heartbeat) {
        const SignalsBlocked blocked; // inherited by the thread: signals are for the one that works
        thread_ = std::thread([this] { watch(); });
    }
}

Companion::~Companion() {
    if (thread_.joinable()) {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }
}

void Companion::watch() {
    Progress last = read_progress();
    std::int64_t last_change = monotonic_ns();
    std::uint64_t told_begun = last.begun;
    std::int64_t told = last_change;
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, period_of(options_), [this] { return done_; })) {
        const Progress now = read_progress();
        const std::int64_t time = monotonic_ns();
        if (now.epoch != last.epoch || !now.watched) {
            last = now;
            last_change = time;
        } else if (options_.watchdog_s > 0 &&
                   static_cast<double>(time - last_change) > options_.watchdog_s * static_cast<double>(kSecond)) {
            end_hung_process(now, options_.watchdog_s, records_);
        }
        // Only what has begun since is told: silence is how a watcher sees that there is no progress.
        if (options_.heartbeat && now.begun != told_begun && time - told >= kSecond) {
            beat(now, records_);
            told_begun = now.begun;
            told = time;
        }
    }
}

} // namespace snapgate
