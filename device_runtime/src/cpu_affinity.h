// On which cores the thread that works may run.
#pragma once

#include "records.h"

#include <cstdint>
#include <vector>

namespace snapgate {

// Binds the calling thread, and no thread that a library has started before. `in_force` is what the kernel says then.
ControlSetting bind_to_cores(const std::vector<std::uint32_t>& cores);

} // namespace snapgate
