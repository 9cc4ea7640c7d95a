#include "signals.h"

#include "fixed_text.h"
#include "progress.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <unistd.h>

namespace snapgate {
namespace {

constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGHUP};
constexpr std::array kCrashSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

std::atomic<bool> stop_flag{false}; // set on whichever thread the signal comes to, a library's too
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<EmergencyRelease>::is_always_lock_free);
std::atomic<EmergencyRelease> emergency_release{nullptr};
std::atomic<int> ending_signal{0}; // 0: the process is to exit
std::array<struct sigaction, kCrashSignals.size()> previous;
alignas(16) std::array<char, 64 * 1024> alternate_stack;

void on_stop(int) noexcept { stop_flag.store(true, std::memory_order_relaxed); }

// The release of a vote hangs too: go on to the end that was coming.
void on_alarm(int) noexcept {
    const int signal = ending_signal.load(std::memory_order_relaxed);
    if (signal == 0) {
        _exit(static_cast<int>(ExitCode::kHung));
    }
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    sigset_t only{};
    sigemptyset(&only);
    sigaddset(&only, signal);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    raise(signal);
}

void on_crash(int signal) noexcept {
    const Progress progress = read_progress();
    FixedText line;
    line.put("snapgate-runner: crash: signal ").put(static_cast<unsigned long>(signal)).put(" during ");
    line.put(progress.phase).put(", step ").put(progress.step).put("\n");
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
        if (kCrashSignals[i] == signal) { // hand over to whoever was there before: a core dump, a tombstone
            sigaction(signal, &previous[i], nullptr);
        }
    }
    ending_signal.store(signal, std::memory_order_relaxed);
    run_emergency_release();
    raise(signal); // pending until this handler returns
}

} // namespace

void install_signal_handlers() noexcept {
    struct sigaction action{};
    action.sa_handler = on_stop;
    action.sa_flags = SA_RESTART; // a library that waits for the DSP is not to see EINTR
    for (const int signal : kStopSignals) {
        sigaction(signal, &action, nullptr);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
    sigaction(SIGXFSZ, &action, nullptr);

    stack_t stack{};
    stack.ss_sp = alternate_stack.data();
    stack.ss_size = alternate_stack.size();
    sigaltstack(&stack, nullptr);
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
        sigaction(kCrashSignals[i], &action, &previous[i]);
    }
}

bool stop_requested() noexcept { return stop_flag.load(std::memory_order_relaxed); }

Status terminated_if_asked(const char* where) {
    if (!stop_requested()) {
        return {};
    }
    return Fault{
        ExitCode::kTerminated,
        where,
        "a signal asked the runner to stop",
        "SIGTERM, SIGINT or SIGHUP",
        "to finish the job",
        "run the job again",
    };
}

void set_emergency_release(EmergencyRelease release) noexcept {
    emergency_release.store(release, std::memory_order_relaxed);
}

void run_emergency_release() noexcept {
    const EmergencyRelease release = emergency_release.exchange(nullptr, std::memory_order_relaxed);
    if (release == nullptr) {
        return;
    }
    struct sigaction action{};
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, nullptr);
    sigset_t only{};
    sigemptyset(&only);
    sigaddset(&only, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    alarm(1);
    release();
    alarm(0);
}

SignalsBlocked::SignalsBlocked() noexcept : before_{} {
    sigset_t blocked{};
    sigemptyset(&blocked);
    for (const int signal : kStopSignals) {
        sigaddset(&blocked, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

} // namespace snapgate
