// Asks the kernel for files before they are mapped, on a thread of its own: while libraries, backend and device open,
// the storage works too. Nothing depends on it: a file that cannot be opened is left to whoever needs it.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace snapgate {

class FilePrefetch {
  public:
    explicit FilePrefetch(std::vector<std::string> paths);
    FilePrefetch(const FilePrefetch&) = delete;
    FilePrefetch& operator=(const FilePrefetch&) = delete;

    // Asks for no more, and waits until the thread has ended.
    ~FilePrefetch();

  private:
    void run(const std::vector<std::string>& paths) const noexcept;

    std::atomic<bool> stop_{false};
    std::thread thread_;
};

} // namespace snapgate
