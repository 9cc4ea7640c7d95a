// What the kernel says about this process's memory (/proc/self/status).
#pragma once

#include "records.h"

#include <string>

namespace snapgate {

MemoryRecord read_process_memory(const char* at);

// The same from the text of a status file; a line that is missing leaves its field empty.
MemoryRecord parse_process_memory(const std::string& status, const char* at);

} // namespace snapgate
