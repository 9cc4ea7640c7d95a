#include "log.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace snapgate {

// One write per line, without allocation: this is called from library threads too.
void log_line(const char* kind, std::string_view text) noexcept {
    char line[768];
    std::size_t length = 0;
    const auto append = [&](std::string_view part) {
        const std::size_t n = std::min(part.size(), sizeof line - 1 - length);
        std::memcpy(line + length, part.data(), n);
        length += n;
    };
    while (!text.empty() && text.back() == '\n') {
        text.remove_suffix(1);
    }
    append("snapgate-runner: ");
    append(kind);
    append(": ");
    append(text);
    line[length++] = '\n';
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, length);
}

} // namespace snapgate
