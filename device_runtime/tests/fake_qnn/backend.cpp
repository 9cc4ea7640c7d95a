// A stand-in for libQnnHtp.so. It is stricter than the real one: every buffer must be aligned to 128 bytes and of the
// exact size, every handle alive, and everything freed in the right order by the time the library is closed.
#include "binary.h"
#include "injection.h"
#include "model.h"
#include "qnn_abi.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>

namespace {

namespace abi = snapgate::qnn::abi;
using namespace standin;

enum class Kind { kLog, kBackend, kDevice, kContext, kProfile, kMemory };

// A tensor's part of a DMA-buf, mapped as the DSP would map it: by its descriptor, at an address of its own.
struct Mapping {
    abi::Handle context;
    std::vector<std::uint32_t> dims;
    std::uint32_t data_type;
    void* block;
    std::uint64_t block_bytes;
    std::uint64_t offset;
    std::uint64_t n_bytes; // from the offset on

    ~Mapping() { munmap(block, block_bytes); }
};

struct Object {
    Kind kind;
    std::unique_ptr<Binary> binary;        // contexts only
    std::vector<abi::ProfileEvent> events; // profiles only: the whole, then its parts
    std::unique_ptr<Mapping> mapping;      // memory only
};

std::map<abi::Handle, std::unique_ptr<Object>> objects;
std::mutex power_mutex; // of the next two: votes are withdrawn by the watchdog's thread too
std::set<std::uint32_t> power_ids;
std::uint32_t last_power_id = 0;

abi::Handle add(Kind kind, std::unique_ptr<Binary> binary = nullptr) {
    auto object = std::make_unique<Object>(Object{kind, std::move(binary), {}, nullptr});
    const abi::Handle handle = object.get();
    objects[handle] = std::move(object);
    return handle;
}

bool is_alive(abi::Handle handle, Kind kind) {
    const auto found = objects.find(handle);
    return found != objects.end() && found->second->kind == kind;
}

bool any_alive(Kind kind) {
    for (const auto& [handle, object] : objects) {
        if (object->kind == kind) {
            return true;
        }
    }
    return false;
}

abi::ErrorCode remove(abi::Handle handle, Kind kind, const char* what) {
    if (!is_alive(handle, kind)) {
        return violation(std::string(what) + " freed twice or never created", 1004);
    }
    objects.erase(handle);
    return 0;
}

void call_log(abi::LogCallback callback, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    callback(format, abi::kLogLevelWarning, 0, arguments);
    va_end(arguments);
}

abi::ErrorCode log_create(abi::LogCallback callback, std::uint32_t level, abi::Handle* out) {
    if (const auto code = enter("logCreate")) {
        return *code;
    }
    if (level == 0) {
        return violation("log level 0", 11003);
    }
    call_log(callback, "stand-in says %s %d\n", "hello", 42);
    *out = add(Kind::kLog);
    return 0;
}

abi::ErrorCode log_free(abi::Handle log) {
    enter("logFree");
    if (any_alive(Kind::kBackend)) {
        return violation("log freed before the backend", 11004);
    }
    return remove(log, Kind::kLog, "log");
}

abi::ErrorCode backend_create(abi::Handle, const abi::Config**, abi::Handle* out) {
    if (const auto code = enter("backendCreate")) {
        return *code;
    }
    std::puts("stand-in chatter on stdout");
    std::fflush(stdout);
    *out = add(Kind::kBackend);
    return 0;
}

abi::ErrorCode backend_get_build_id(const char** id) {
    if (const auto code = enter("backendGetBuildId")) {
        return *code;
    }
    *id = "standin-1";
    return 0;
}

abi::ErrorCode backend_free(abi::Handle backend) {
    enter("backendFree");
    if (any_alive(Kind::kDevice) || any_alive(Kind::kContext) || any_alive(Kind::kProfile)) {
        return violation("backend freed before device and contexts", 4003);
    }
    return remove(backend, Kind::kBackend, "backend");
}

abi::ErrorCode device_create(abi::Handle, const abi::Config** configs, abi::Handle* out) {
    std::string detail = "default";
    if (configs != nullptr) {
        const auto* soc = static_cast<const abi::HtpDeviceSoc*>(configs[0]->custom);
        detail = "soc " + std::to_string(soc->soc_number_up_to_5_43) + " " + std::to_string(soc->soc_number_from_5_51);
    }
    if (const auto code = enter("deviceCreate", detail)) {
        return *code;
    }
    *out = add(Kind::kDevice);
    return 0;
}

abi::ErrorCode device_free(abi::Handle device) {
    enter("deviceFree");
    if (any_alive(Kind::kContext) || !power_ids.empty()) {
        return violation("device freed before contexts and power votes", 14003);
    }
    return remove(device, Kind::kDevice, "device");
}

abi::ErrorCode create_power_config_id(std::uint32_t, std::uint32_t, std::uint32_t* id) {
    if (const auto code = enter("createPowerConfigId")) {
        return *code;
    }
    const std::lock_guard lock(power_mutex);
    *id = ++last_power_id;
    power_ids.insert(*id);
    return 0;
}

abi::ErrorCode destroy_power_config_id(std::uint32_t id) {
    enter("destroyPowerConfigId");
    const std::lock_guard lock(power_mutex);
    return power_ids.erase(id) == 1 ? 0 : violation("unknown power id", 13000);
}

abi::ErrorCode set_power_config(std::uint32_t id, const abi::PowerConfig** configs) {
    std::string detail;
    for (const abi::PowerConfig** config = configs; *config != nullptr; ++config) {
        detail += "option " + std::to_string((*config)->option);
        if ((*config)->option == abi::kPowerDcvsV3) {
            const abi::DcvsV3& dcvs = (*config)->dcvs;
            detail += (dcvs.power_mode == abi::kPowerModePerformance ? " dcvs " : " saver dcvs ") +
                      std::to_string(dcvs.dcvs_enable) + " latency " + std::to_string(dcvs.sleep_latency_us) + " bus " +
                      std::to_string(dcvs.bus_max) + " core " + std::to_string(dcvs.core_max);
        } else {
            detail += " us " + std::to_string((*config)->microseconds);
        }
    }
    if (const auto code = enter("setPowerConfig", detail)) {
        return *code;
    }
    const std::lock_guard lock(power_mutex);
    return power_ids.count(id) == 1 ? 0 : violation("unknown power id", 13000);
}

abi::ErrorCode device_get_infrastructure(const abi::HtpInfrastructure** out) {
    static const abi::HtpInfrastructure infrastructure{
        abi::kInfrastructurePerformance, 0, create_power_config_id, destroy_power_config_id, set_power_config, nullptr};
    if (const auto code = enter("deviceGetInfrastructure")) {
        return *code;
    }
    *out = &infrastructure;
    return 0;
}

abi::ErrorCode context_create_from_binary(abi::Handle backend, abi::Handle device, const abi::Config**,
                                          const void* bytes, std::uint64_t size, abi::Handle* out, abi::Handle) {
    if (const auto code = enter("contextCreateFromBinary")) {
        return *code;
    }
    if (!is_alive(backend, Kind::kBackend) || !is_alive(device, Kind::kDevice)) {
        return violation("context created on a dead backend or device", 5002);
    }
    auto binary = parse_binary(bytes, size);
    if (binary == nullptr) {
        return 30010;
    }
    *out = add(Kind::kContext, std::move(binary));
    return 0;
}

abi::ErrorCode context_free(abi::Handle context, abi::Handle) {
    enter("contextFree");
    for (const auto& [handle, object] : objects) {
        if (object->kind == Kind::kMemory && object->mapping->context == context) {
            return violation("context freed before its memory is deregistered", 8001);
        }
    }
    return remove(context, Kind::kContext, "context");
}

abi::ErrorCode graph_retrieve(abi::Handle context, const char* name, abi::Handle* out) {
    if (const auto code = enter("graphRetrieve", name)) {
        return *code;
    }
    if (!is_alive(context, Kind::kContext)) {
        return violation("graph of a dead context", 5002);
    }
    for (BinaryGraph& graph : objects[context]->binary->graphs) {
        if (graph.name == name) {
            *out = &graph;
            return 0;
        }
    }
    return 6003;
}

// The context that owns a graph handle, or null.
const Binary* owner_of(abi::Handle graph) {
    for (const auto& [handle, object] : objects) {
        if (object->kind == Kind::kContext) {
            for (const BinaryGraph& candidate : object->binary->graphs) {
                if (&candidate == graph) {
                    return object->binary.get();
                }
            }
        }
    }
    return nullptr;
}

// Where a tensor lies; what is wrong with its memory, or nothing.
std::string locate(const Binary& binary, const BinaryTensor& expected, const abi::Tensor& given, std::byte*& data) {
    if (given.mem_type == abi::kMemHandle) {
        if (!is_alive(given.mem_handle, Kind::kMemory)) {
            return " has a dead memory handle";
        }
        const Mapping& mapping = *objects[given.mem_handle]->mapping;
        if (objects[mapping.context]->binary.get() != &binary) {
            return " is registered in another context";
        }
        if (mapping.dims != expected.dims || mapping.data_type != expected.data_type) {
            return " is registered as another tensor";
        }
        if (mapping.n_bytes < expected.n_bytes()) {
            return " reaches behind its memory";
        }
        data = static_cast<std::byte*>(mapping.block) + mapping.offset;
        return "";
    }
    if (given.mem_type != abi::kMemRaw) {
        return " of memory type " + std::to_string(given.mem_type);
    }
    if (given.client_buffer.data_size != expected.n_bytes()) {
        return " of " + std::to_string(given.client_buffer.data_size) + " bytes instead of " +
               std::to_string(expected.n_bytes());
    }
    data = static_cast<std::byte*>(given.client_buffer.data);
    return "";
}

// Checks the tensors of one side and collects their memory; what is wrong, or nothing.
std::string bind_tensors(const Binary& binary, const std::vector<BinaryTensor>& expected, const abi::Tensor* tensors,
                         std::uint32_t n_tensors, Memory& memory) {
    if (n_tensors != expected.size()) {
        return std::to_string(n_tensors) + " tensors instead of " + std::to_string(expected.size());
    }
    for (std::uint32_t i = 0; i < n_tensors; ++i) {
        const abi::Tensor& given = tensors[i];
        const BinaryTensor* match = nullptr;
        for (const BinaryTensor& candidate : expected) {
            match = candidate.id == given.id ? &candidate : match;
        }
        if (match == nullptr) {
            return "unknown tensor id " + std::to_string(given.id);
        }
        const std::vector<std::uint32_t> dims(given.dimensions, given.dimensions + given.rank);
        if (dims != match->dims || given.data_type != match->data_type || match->name != given.name ||
            given.version != match->tensor_version) {
            return match->name + " described wrongly";
        }
        std::byte* data = nullptr;
        if (const std::string wrong = locate(binary, *match, given, data); !wrong.empty()) {
            return match->name + wrong;
        }
        if (reinterpret_cast<std::uintptr_t>(data) % 128 != 0) {
            return match->name + " is not aligned to 128 bytes";
        }
        memory[match->name] = data;
    }
    return memory.size() < n_tensors ? "one tensor given twice" : "";
}

// " 5 6 0": what the runner asks for in this step, for the trace.
std::string token_ids(const BinaryGraph& graph, const Memory& memory) {
    const auto found = memory.find("input_ids");
    if (found == memory.end()) { // a later shard
        return "";
    }
    const auto* ids = reinterpret_cast<const std::int32_t*>(found->second);
    std::string text;
    for (std::uint32_t i = 0; i < graph.n_tokens; ++i) {
        text += " " + std::to_string(ids[i]);
    }
    return text;
}

abi::ErrorCode graph_execute(abi::Handle handle, const abi::Tensor* inputs, std::uint32_t n_inputs,
                             abi::Tensor* outputs, std::uint32_t n_outputs, abi::Handle profile, abi::Handle) {
    if (profile != nullptr) {
        if (!is_alive(profile, Kind::kProfile)) {
            return violation("execution with a dead profile", 12002);
        }
        auto& events = objects[profile]->events;
        events = {{400, abi::kUnitMicroseconds, 7, nullptr},
                  {404, abi::kUnitCycles, 1000 + events.size(), "node_1:OpId_1 (cycles)"},
                  {404, abi::kUnitCycles, 2000, "node_2:OpId_2 (cycles)"}};
    }
    const Binary* binary = owner_of(handle);
    if (binary == nullptr) {
        return violation("execution of a dead graph", 6001);
    }
    const auto& graph = *static_cast<const BinaryGraph*>(handle);
    Memory memory;
    Memory written;
    std::string wrong = bind_tensors(*binary, graph.inputs, inputs, n_inputs, memory);
    wrong += bind_tensors(*binary, graph.outputs, outputs, n_outputs, written);
    if (const auto code = enter("graphExecute", graph.name + (wrong.empty() ? token_ids(graph, memory) : ""))) {
        return *code;
    }
    if (wrong.empty()) {
        memory.merge(written);
        wrong = compute(*binary, graph, memory, !setting("FAKE_QNN_NAN").empty());
    }
    return wrong.empty() ? 0 : violation(graph.name + ": " + wrong, 6004);
}

abi::ErrorCode graph_set_config(abi::Handle handle, const abi::Config** configs) {
    std::string detail;
    for (const abi::Config** config = configs; *config != nullptr; ++config) {
        std::uint32_t value = 0;
        std::memcpy(&value, &(*config)->other, sizeof value);
        detail += "option " + std::to_string((*config)->option) + " value " + std::to_string(value);
    }
    if (const auto code = enter("graphSetConfig", detail)) {
        return *code;
    }
    return owner_of(handle) == nullptr ? violation("configuration of a dead graph", 6001) : 0;
}

abi::ErrorCode profile_create(abi::Handle backend, std::uint32_t level, abi::Handle* out) {
    if (const auto code = enter("profileCreate", "level " + std::to_string(level))) {
        return *code;
    }
    if (!is_alive(backend, Kind::kBackend)) {
        return violation("profile of a dead backend", 12001);
    }
    *out = add(Kind::kProfile);
    return 0;
}

// An event's id is the address of what is told of it; only the first has parts.
abi::ErrorCode profile_get_events(abi::Handle profile, const std::uint64_t** ids, std::uint32_t* n_ids) {
    static std::uint64_t id = 0;
    if (const auto code = enter("profileGetEvents")) {
        return *code;
    }
    if (!is_alive(profile, Kind::kProfile)) {
        return violation("events of a dead profile", 12002);
    }
    auto& events = objects[profile]->events;
    id = reinterpret_cast<std::uint64_t>(events.data());
    *ids = &id;
    *n_ids = events.empty() ? 0 : 1;
    return 0;
}

abi::ErrorCode profile_get_sub_events(std::uint64_t id, const std::uint64_t** ids, std::uint32_t* n_ids) {
    static std::vector<std::uint64_t> parts;
    const auto* event = reinterpret_cast<const abi::ProfileEvent*>(id);
    if (event->type != 400) {
        *n_ids = 0;
        return 0;
    }
    parts = {reinterpret_cast<std::uint64_t>(event + 1), reinterpret_cast<std::uint64_t>(event + 2)};
    *ids = parts.data();
    *n_ids = 2;
    return 0;
}

abi::ErrorCode profile_get_event_data(std::uint64_t id, abi::ProfileEvent* data) {
    *data = *reinterpret_cast<const abi::ProfileEvent*>(id);
    return 0;
}

abi::ErrorCode profile_free(abi::Handle profile) {
    enter("profileFree");
    return remove(profile, Kind::kProfile, "profile");
}

abi::ErrorCode mem_register(abi::Handle context, const abi::MemDescriptor* descriptors, std::uint32_t n,
                            abi::Handle* handles) {
    const abi::MemDescriptor& asked = descriptors[0];
    const auto* shared = static_cast<const abi::HtpSharedBuffer*>(asked.custom);
    if (const auto code = enter("memRegister", "offset " + std::to_string(shared->offset))) {
        return *code;
    }
    if (n != 1 || asked.mem_type != abi::kMemDescriptorCustom || shared->type != abi::kHtpMemSharedBuffer ||
        asked.shape_config != nullptr) {
        return violation("memory of another kind than a shared buffer", 8005);
    }
    if (!is_alive(context, Kind::kContext)) {
        return violation("memory registered in a dead context", 8000);
    }
    struct stat info{};
    if (fstat(shared->fd, &info) != 0 || static_cast<std::uint64_t>(info.st_size) < shared->size ||
        shared->offset >= shared->size || shared->offset % 128 != 0) {
        return violation("a part that is not in the buffer", 8003);
    }
    void* block = mmap(nullptr, shared->size, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    if (block == MAP_FAILED) {
        return 8003;
    }
    *handles = add(Kind::kMemory);
    objects[*handles]->mapping =
        std::unique_ptr<Mapping>(new Mapping{context,
                                             {asked.dimensions, asked.dimensions + asked.n_dimensions},
                                             asked.data_type,
                                             block,
                                             shared->size,
                                             shared->offset,
                                             shared->size - shared->offset});
    return 0;
}

abi::ErrorCode mem_deregister(const abi::Handle* handles, std::uint32_t n) {
    enter("memDeRegister");
    return n == 1 ? remove(handles[0], Kind::kMemory, "memory") : violation("not one handle", 8000);
}

void unused() {}

// Destroyed when the library is closed, or at the end of the process.
struct LeakCheck {
    ~LeakCheck() {
        if (!objects.empty() || !power_ids.empty()) {
            violation(std::to_string(objects.size()) + " objects and " + std::to_string(power_ids.size()) +
                          " power votes were never freed",
                      0);
        }
    }
} leak_check; // after what it looks at, so that it is destroyed before

template <typename Function>
void install(Function& slot, Function function, const char* call) {
    slot = is_null_slot(call) ? nullptr : function;
}

} // namespace

extern "C" __attribute__((visibility("default"))) abi::ErrorCode
QnnInterface_getProviders(const abi::Provider*** providers, std::uint32_t* n_providers) {
    static abi::Provider provider{};
    static const abi::Provider* list[] = {&provider};
    const std::string id = setting("FAKE_QNN_BACKEND_ID");
    provider.backend_id = id.empty() ? abi::kHtpBackendId : static_cast<std::uint32_t>(std::stoul(id));
    provider.name = "STANDIN_HTP";
    provider.core = version_from("FAKE_QNN_CORE", {2, 40, 0});
    provider.backend = {5, 51, 0};
    abi::CoreTable& table = provider.table;
    table.property_has_capability = unused;
    install(table.backend_create, backend_create, "backendCreate");
    install(table.backend_get_build_id, backend_get_build_id, "backendGetBuildId");
    install(table.backend_free, backend_free, "backendFree");
    install(table.context_create_from_binary, context_create_from_binary, "contextCreateFromBinary");
    install(table.context_free, context_free, "contextFree");
    install(table.graph_retrieve, graph_retrieve, "graphRetrieve");
    install(table.graph_execute, graph_execute, "graphExecute");
    install(table.graph_set_config, graph_set_config, "graphSetConfig");
    install(table.profile_create, profile_create, "profileCreate");
    table.profile_get_events = profile_get_events;
    table.profile_get_sub_events = profile_get_sub_events;
    table.profile_get_event_data = profile_get_event_data;
    table.profile_free = profile_free;
    install(table.mem_register, mem_register, "memRegister");
    install(table.mem_deregister, mem_deregister, "memDeRegister");
    install(table.log_create, log_create, "logCreate");
    install(table.log_free, log_free, "logFree");
    install(table.device_get_infrastructure, device_get_infrastructure, "deviceGetInfrastructure");
    install(table.device_create, device_create, "deviceCreate");
    install(table.device_free, device_free, "deviceFree");
    *providers = list;
    *n_providers = 1;
    return 0;
}
