// The second thread: says once a second on stdout how far the work is, and ends the process when one load phase or
// one graph execution takes longer than its deadline. It reads atomics only; the thread that works never waits for it.
#pragma once

#include "record_writer.h"
#include "result.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace snapgate {

struct CompanionOptions {
    double watchdog_s = 0; // 0: nothing is watched
    bool heartbeat = false;
};

class Companion {
  public:
    // Starts no thread when there is nothing to do for it. `records` must outlive the companion.
    Companion(const CompanionOptions& options, RecordWriter& records);
    Companion(const Companion&) = delete;
    Companion& operator=(const Companion&) = delete;
    ~Companion();

  private:
    void watch();

    CompanionOptions options_;
    RecordWriter& records_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool done_ = false;
    std::thread thread_;
};

} // namespace snapgate
