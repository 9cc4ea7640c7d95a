#include "profile.h"

#include "log.h"
#include "qnn_codes.h"

#include <cstring>

namespace snapgate::qnn {
namespace {

constexpr std::size_t kMaxEvents = 65536;
constexpr std::uint32_t kMaxDepth = 8;
constexpr std::size_t kMaxText = 1024;

std::uint32_t level_of(Profiling level) noexcept {
    switch (level) {
    case Profiling::kDetailed:
        return abi::kProfileDetailed;
    case Profiling::kLinting:
        return abi::kProfileHtpLinting;
    default:
        return abi::kProfileBasic;
    }
}

const char* unit_name(std::uint32_t unit) noexcept {
    switch (unit) {
    case abi::kUnitMicroseconds:
        return "us";
    case abi::kUnitBytes:
        return "bytes";
    case abi::kUnitCycles:
        return "cycles";
    case abi::kUnitCount:
        return "count";
    case abi::kUnitObject:
        return "object";
    default:
        return "none";
    }
}

void add_events(const abi::CoreTable& table, const std::uint64_t* ids, std::uint32_t n_ids, std::uint32_t depth,
                std::vector<ProfileEventRecord>& events) {
    for (std::uint32_t i = 0; ids != nullptr && i < n_ids && events.size() < kMaxEvents; ++i) {
        abi::ProfileEvent data{};
        if (error_number(table.profile_get_event_data(ids[i], &data)) != 0) {
            continue;
        }
        const char* name = data.identifier == nullptr ? "" : data.identifier;
        // The schema's integers have 63 bits.
        const std::uint64_t value = data.value & INT64_MAX;
        events.push_back({std::string(name, strnlen(name, kMaxText)), data.type, unit_name(data.unit), value, depth});
        const std::uint64_t* parts = nullptr;
        std::uint32_t n_parts = 0;
        if (depth < kMaxDepth && error_number(table.profile_get_sub_events(ids[i], &parts, &n_parts)) == 0) {
            add_events(table, parts, n_parts, depth + 1, events);
        }
    }
}

} // namespace

Profile create_profile(const abi::CoreTable& table, const Backend& backend, Profiling level, const std::string& graph,
                       std::vector<ControlSetting>& settings) {
    if (level == Profiling::kOff) {
        return Profile(nullptr, {&table});
    }
    ControlSetting setting{"profiling " + graph, name_of(level), true, {}, {}};
    abi::Handle handle = nullptr;
    const bool offered = table.profile_create != nullptr && table.profile_get_events != nullptr &&
                         table.profile_get_sub_events != nullptr && table.profile_get_event_data != nullptr &&
                         table.profile_free != nullptr;
    if (offered) {
        const abi::ErrorCode code = table.profile_create(backend.get(), level_of(level), &handle);
        if (error_number(code) != 0) {
            handle = nullptr;
            setting.qnn_code = code;
        }
    }
    setting.accepted = handle != nullptr;
    if (!setting.accepted) {
        log_line("warning", "the library makes no profile of " + graph + ": " +
                                (offered ? error_name(setting.qnn_code.value_or(0)) : "it has no such functions"));
    }
    settings.push_back(std::move(setting));
    return Profile(handle, {&table});
}

std::vector<ProfileEventRecord> read_events(const abi::CoreTable& table, abi::Handle profile) {
    std::vector<ProfileEventRecord> events;
    const std::uint64_t* ids = nullptr;
    std::uint32_t n_ids = 0;
    if (profile != nullptr && error_number(table.profile_get_events(profile, &ids, &n_ids)) == 0) {
        add_events(table, ids, n_ids, 0, events);
    }
    return events;
}

} // namespace snapgate::qnn
