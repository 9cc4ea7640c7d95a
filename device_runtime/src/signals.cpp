#include "signals.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <unistd.h>

namespace snapgate {
namespace {

constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGHUP};
constexpr std::array kCrashSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

std::atomic<bool> stop_flag{false}; // set on whichever thread the signal comes to, a library's too
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);
std::atomic<const char*> place{"start"};
std::atomic<unsigned long> place_step{0};
std::array<struct sigaction, kCrashSignals.size()> previous;
alignas(16) std::array<char, 64 * 1024> alternate_stack;

void on_stop(int) noexcept { stop_flag.store(true, std::memory_order_relaxed); }

// Async-signal-safe pieces of a line.
void put(const char* text) noexcept {
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
}

void put(unsigned long number) noexcept {
    char digits[24];
    std::size_t i = sizeof digits;
    digits[--i] = '\0';
    do {
        digits[--i] = static_cast<char>('0' + number % 10);
        number /= 10;
    } while (number != 0);
    put(digits + i);
}

void on_crash(int signal) noexcept {
    put("snapgate-runner: crash: signal ");
    put(static_cast<unsigned long>(signal));
    put(" during ");
    put(place.load(std::memory_order_relaxed));
    put(", step ");
    put(place_step.load(std::memory_order_relaxed));
    put("\n");
    for (std::size_t i = 0; i < kCrashSignals.size(); ++i) {
        if (kCrashSignals[i] == signal) { // hand over to whoever was there before: a core dump, a tombstone
            sigaction(signal, &previous[i], nullptr);
        }
    }
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

void set_crash_place(const char* what, unsigned long step) noexcept {
    place.store(what, std::memory_order_relaxed);
    place_step.store(step, std::memory_order_relaxed);
}

} // namespace snapgate
