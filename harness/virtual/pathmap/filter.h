// The seccomp filter that stops a program at the calls of calls.h and lets every other call run at full speed.
#pragma once

namespace pathmap {

// For this process and all it starts, for good. errno is set on failure.
[[nodiscard]] bool install_filter(bool with_storage);

} // namespace pathmap
