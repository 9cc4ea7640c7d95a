// What the QNN library measures itself while a graph runs.
#pragma once

#include "job.h"
#include "qnn_objects.h"
#include "records.h"

#include <vector>

namespace snapgate::qnn {

using Profile = std::unique_ptr<void, FreeThrough<&abi::CoreTable::profile_free>>;

// A profile to execute a graph with; empty when it is off or the library has none, which `settings` then says.
Profile create_profile(const abi::CoreTable& table, const Backend& backend, Profiling level, const std::string& graph,
                       std::vector<ControlSetting>& settings);

// The events of the last execution, each before those it is made of (`depth`); at most 65536.
std::vector<ProfileEventRecord> read_events(const abi::CoreTable& table, abi::Handle profile);

} // namespace snapgate::qnn
