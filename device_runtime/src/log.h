// Log lines for a human, on stderr. Records never go here, and logs never go to stdout.
#pragma once

#include <string_view>

namespace snapgate {

void log_line(const char* kind, std::string_view text) noexcept;

} // namespace snapgate
