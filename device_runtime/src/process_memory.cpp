#include "process_memory.h"

#include <array>
#include <fstream>
#include <sstream>

namespace snapgate {

MemoryRecord parse_process_memory(const std::string& status, const char* at) {
    MemoryRecord record;
    record.at = at;
    record.monotonic_ns = monotonic_ns();
    const std::array fields = {
        std::pair{"VmHWM:", &record.vm_hwm_bytes},     std::pair{"VmRSS:", &record.vm_rss_bytes},
        std::pair{"VmSwap:", &record.vm_swap_bytes},   std::pair{"RssAnon:", &record.rss_anon_bytes},
        std::pair{"RssFile:", &record.rss_file_bytes},
    };
    std::istringstream lines(status);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name;
        std::string unit;
        std::uint64_t kibibytes = 0;
        if (!(words >> name >> kibibytes >> unit) || unit != "kB") {
            continue;
        }
        for (const auto& [known, target] : fields) {
            if (name == known) {
                *target = kibibytes * 1024; // the kernel's "kB" are 1024 bytes
            }
        }
    }
    return record;
}

MemoryRecord read_process_memory(const char* at) {
    std::ifstream file("/proc/self/status");
    std::ostringstream text;
    text << file.rdbuf();
    return parse_process_memory(text.str(), at);
}

} // namespace snapgate
