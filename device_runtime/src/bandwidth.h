// What the memory gives: threads on all processors read a buffer that no cache holds, again and again.
#pragma once

#include "file_descriptor.h"
#include "records.h"
#include "result.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace snapgate {

// Four times the last-level cache, at least 256 MiB (system caches that no kernel lists have a few) and at most 1 GiB.
std::size_t bandwidth_buffer_bytes(std::optional<std::uint64_t> last_level_cache_bytes) noexcept;

// The largest cache of the first processor, by the kernel's word; nothing: it does not say.
std::optional<std::uint64_t> last_level_cache_bytes();

// So many passes, and more until `least_ns` are over, but not without end. OUT_OF_MEMORY without room for `n_bytes`,
// TERMINATED when asked to end between two passes.
Result<BandwidthRecord> measure_bandwidth(std::size_t n_bytes, std::uint32_t n_threads, std::uint32_t least_passes,
                                          std::int64_t least_ns);

// Measures this machine; one line goes to `records`, or the error.
ExitCode report_bandwidth(FileDescriptor records);

} // namespace snapgate
