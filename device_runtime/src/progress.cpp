#include "progress.h"

#include <atomic>

namespace snapgate {
namespace {

std::atomic<const char*> current_phase{"start"};
std::atomic<unsigned long> current_step{0};
std::atomic<std::uint64_t> current_epoch{0};
std::atomic<std::uint64_t> current_begun{0};
std::atomic<bool> is_watched{false};
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

void next_epoch() noexcept {
    current_epoch.store(current_epoch.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

} // namespace

void set_progress(const char* phase, unsigned long step, Watch watch) noexcept {
    current_phase.store(phase, std::memory_order_relaxed);
    current_step.store(step, std::memory_order_relaxed);
    is_watched.store(watch == Watch::kYes, std::memory_order_relaxed);
    current_begun.store(current_begun.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    next_epoch();
}

Progress read_progress() noexcept {
    return {current_phase.load(std::memory_order_relaxed), current_step.load(std::memory_order_relaxed),
            current_epoch.load(std::memory_order_relaxed), current_begun.load(std::memory_order_relaxed),
            is_watched.load(std::memory_order_relaxed)};
}

void renew_deadline() noexcept { next_epoch(); }

Unwatched::Unwatched() noexcept : was_watched_(is_watched.load(std::memory_order_relaxed)) {
    is_watched.store(false, std::memory_order_relaxed);
    next_epoch();
}

Unwatched::~Unwatched() {
    is_watched.store(was_watched_, std::memory_order_relaxed);
    next_epoch();
}

} // namespace snapgate
