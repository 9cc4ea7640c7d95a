// A session loaded on a thread of its own, for a program that embeds this library and has something else to do
// meanwhile. One load at a time: how far it is (progress.h) is kept once for the process.
#pragma once

#include "session.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

namespace snapgate {

class SessionLoader {
  public:
    // `job` must outlive the session, `records` the loader; until `take` returns only the loader's thread may write
    // records. INTERNAL: there is no thread to be had.
    static Result<SessionLoader> start(const Job& job, RecordWriter& records);

    SessionLoader(SessionLoader&&) = default;
    SessionLoader& operator=(SessionLoader&&) = delete;

    // Cancels, waits, and frees what was loaded and not taken.
    ~SessionLoader();

    // True once `take` would not wait.
    bool ready_within(std::chrono::milliseconds time) const {
        return future_.wait_for(time) == std::future_status::ready;
    }

    // Ends the load after the phase under way: `take` then gives TERMINATED. From any thread; no effect on what is
    // ready.
    void cancel() noexcept { cancelled_->store(true, std::memory_order_relaxed); }

    // Waits for the session or the fault; to be called once.
    Result<std::unique_ptr<Session>> take() { return future_.get(); }

  private:
    using Outcome = Result<std::unique_ptr<Session>>;

    SessionLoader() = default;

    std::unique_ptr<std::atomic<bool>> cancelled_ = std::make_unique<std::atomic<bool>>(false);
    std::future<Outcome> future_; // of std::async: its destructor waits; before the flag goes
};

} // namespace snapgate
