#include "bandwidth.h"

#include "aligned_buffer.h"
#include "clock.h"
#include "guarded.h"
#include "record_writer.h"
#include "signals.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace snapgate {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr std::uint64_t kLeastBytes = 256 * kMiB;
constexpr std::uint64_t kMostBytes = 1024 * kMiB;
constexpr std::uint32_t kLeastPasses = 12;
constexpr std::uint32_t kMostPasses = 600;
constexpr std::int64_t kLeastNs = 1'000'000'000; // clocks rise only under load
constexpr std::size_t kWordsAtOnce = 8;          // of 8 bytes: a cache line, and sums that do not wait for each other

std::uint64_t sum_of(const std::uint64_t* words, std::size_t n_words) noexcept {
    std::uint64_t sums[kWordsAtOnce] = {};
    for (std::size_t i = 0; i + kWordsAtOnce <= n_words; i += kWordsAtOnce) {
        for (std::size_t lane = 0; lane < kWordsAtOnce; ++lane) {
            sums[lane] += words[i + lane];
        }
    }
    std::uint64_t total = 0;
    for (const std::uint64_t sum : sums) {
        total += sum;
    }
    return total;
}

struct ThreadStamps {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

// Threads that begin each pass together. Each reads its part of the buffer, which it has filled with numbers first:
// pages of one content may be compressed or merged.
class Readers {
  public:
    Readers(std::uint64_t* words, std::size_t n_words, std::uint32_t n_threads)
        : words_(words), n_each_(n_words / n_threads), stamps_(n_threads) {}

    Readers(const Readers&) = delete;
    Readers& operator=(const Readers&) = delete;

    ~Readers() {
        leave_.store(true);
        begin_next();
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    Status start() {
        const SignalsBlocked blocked;
        try {
            for (std::size_t i = 0; i < stamps_.size(); ++i) {
                threads_.emplace_back([this, i] { work(i); });
            }
        } catch (const std::system_error& error) {
            return Fault{ExitCode::kOutOfMemory, "bandwidth", "no thread can be started",
                         error.what(),           "",          "close other apps"};
        }
        wait_for_all();
        return {};
    }

    std::int64_t pass() {
        begin_next();
        wait_for_all();
        std::int64_t first = stamps_[0].start_ns;
        std::int64_t last = stamps_[0].end_ns;
        for (const ThreadStamps& stamps : stamps_) {
            first = std::min(first, stamps.start_ns);
            last = std::max(last, stamps.end_ns);
        }
        return last - first;
    }

    std::uint64_t checksum() const noexcept { return checksum_.load(); }

  private:
    void begin_next() noexcept {
        n_done_.store(0);
        round_.fetch_add(1);
    }

    void wait_for_all() const noexcept {
        while (n_done_.load() < threads_.size()) {
            std::this_thread::yield();
        }
    }

    void work(std::size_t number) noexcept {
        std::uint64_t* mine = words_ + number * n_each_;
        for (std::size_t i = 0; i < n_each_; ++i) {
            mine[i] = number + i;
        }
        for (std::uint32_t seen = 0;; ++seen) {
            n_done_.fetch_add(1);
            while (round_.load() == seen) {
                std::this_thread::yield();
            }
            if (leave_.load()) {
                return;
            }
            stamps_[number].start_ns = monotonic_ns();
            const std::uint64_t sum = sum_of(mine, n_each_);
            stamps_[number].end_ns = monotonic_ns();
            checksum_.fetch_add(sum); // what is used has to be read
        }
    }

    std::uint64_t* words_;
    std::size_t n_each_;
    std::vector<ThreadStamps> stamps_;
    std::atomic<std::uint32_t> round_{0};
    std::atomic<std::size_t> n_done_{0};
    std::atomic<bool> leave_{false};
    std::atomic<std::uint64_t> checksum_{0};
    std::vector<std::thread> threads_;
};

std::optional<std::uint64_t> size_in(const std::string& path) {
    std::ifstream file(path);
    std::uint64_t size = 0;
    char unit = '\0';
    if (!(file >> size) || size == 0 || size > kMostBytes) {
        return std::nullopt;
    }
    file >> unit;
    return unit == 'M' ? size * kMiB : unit == 'K' ? size * 1024 : size;
}

std::uint32_t processors_allowed() noexcept {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const int n = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return static_cast<std::uint32_t>(std::max(n, 1));
}

} // namespace

std::size_t bandwidth_buffer_bytes(std::optional<std::uint64_t> last_level_cache_bytes) noexcept {
    const std::uint64_t wanted = 4 * std::min(last_level_cache_bytes.value_or(0), kMostBytes);
    return static_cast<std::size_t>(std::clamp(wanted, kLeastBytes, kMostBytes));
}

std::optional<std::uint64_t> last_level_cache_bytes() {
    std::optional<std::uint64_t> largest;
    for (int index = 0; index < 8; ++index) {
        const auto size = size_in("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
        if (size && (!largest || *size > *largest)) {
            largest = size;
        }
    }
    return largest;
}

Result<BandwidthRecord> measure_bandwidth(std::size_t n_bytes, std::uint32_t n_threads, std::uint32_t least_passes,
                                          std::int64_t least_ns) {
    const std::size_t n_each = n_bytes / sizeof(std::uint64_t) / n_threads / kWordsAtOnce * kWordsAtOnce;
    BandwidthRecord record;
    record.n_bytes = n_each * n_threads * sizeof(std::uint64_t);
    record.n_threads = n_threads;
    auto buffer = AlignedBuffer::allocate(record.n_bytes, "the memory that is read");
    if (!buffer) {
        return std::move(buffer).fault();
    }
    void* memory = buffer->data();
    Readers readers(static_cast<std::uint64_t*>(memory), n_each * n_threads, n_threads);
    SNAPGATE_TRY(readers.start());
    record.start_ns = monotonic_ns();
    record.pass_ns.reserve(kMostPasses);
    while (record.pass_ns.size() < least_passes ||
           (record.pass_ns.size() < kMostPasses && monotonic_ns() - record.start_ns < least_ns)) {
        SNAPGATE_TRY(terminated_if_asked("bandwidth"));
        record.pass_ns.push_back(readers.pass());
    }
    record.checksum = readers.checksum();
    return record;
}

ExitCode report_bandwidth(FileDescriptor records) {
    RecordWriter writer(std::move(records));
    const Status outcome = guarded<Status>([&]() -> Status {
        const auto cache = last_level_cache_bytes();
        auto found = measure_bandwidth(bandwidth_buffer_bytes(cache), processors_allowed(), kLeastPasses, kLeastNs);
        if (!found) {
            return std::move(found).fault();
        }
        found->last_level_cache_bytes = cache;
        return writer.write(*found);
    });
    if (outcome) {
        return ExitCode::kOk;
    }
    const ExitCode code = outcome.fault().code;
    static_cast<void>(static_cast<bool>(writer.write(outcome.fault())));
    return code;
}

} // namespace snapgate
