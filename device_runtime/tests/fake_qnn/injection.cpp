#include "injection.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

namespace standin {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) {
        parts.push_back(part);
    }
    return parts;
}

// The runner's watchdog calls from a second thread while the first hangs in a call: nothing is held while it does.
int count_call(const std::string& call) {
    static std::mutex mutex;
    static std::map<std::string, int> counts;
    const std::lock_guard lock(mutex);
    return ++counts[call];
}

} // namespace

std::string setting(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

std::optional<snapgate::qnn::abi::ErrorCode> enter(const std::string& call, const std::string& detail) {
    const std::string nth = std::to_string(count_call(call));
    if (const std::string trace = setting("FAKE_QNN_TRACE"); !trace.empty()) {
        std::ofstream(trace, std::ios::app) << call << (detail.empty() ? "" : " " + detail) << "\n";
    }
    for (const std::string& entry : split(setting("FAKE_QNN_DELAY"), ',')) {
        const auto parts = split(entry, ':');
        if (parts.at(0) == call) {
            std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(parts.at(1))));
        }
    }
    for (const std::string& entry : split(setting("FAKE_QNN_CRASH"), ',')) {
        const auto parts = split(entry, ':');
        if (parts.at(0) == call && parts.at(1) == nth) {
            std::raise(SIGSEGV);
        }
    }
    for (const std::string& entry : split(setting("FAKE_QNN_HANG"), ',')) {
        const auto parts = split(entry, ':');
        while (parts.at(0) == call && parts.at(1) == nth) {
            std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    for (const std::string& entry : split(setting("FAKE_QNN_FAIL"), ',')) {
        const auto parts = split(entry, ':');
        if (parts.at(0) == call && parts.at(1) == nth) {
            return std::stoull(parts.at(2));
        }
    }
    return std::nullopt;
}

snapgate::qnn::abi::ErrorCode violation(const std::string& text, snapgate::qnn::abi::ErrorCode code) {
    std::fprintf(stderr, "standin violation: %s\n", text.c_str());
    return code;
}

snapgate::qnn::abi::Version version_from(const char* variable, const snapgate::qnn::abi::Version& otherwise) {
    const auto parts = split(setting(variable), '.');
    if (parts.size() != 3) {
        return otherwise;
    }
    const auto number = [&parts](std::size_t i) { return static_cast<std::uint32_t>(std::stoul(parts[i])); };
    return {number(0), number(1), number(2)};
}

bool is_null_slot(const char* call) { return setting("FAKE_QNN_NULL") == call; }

} // namespace standin
