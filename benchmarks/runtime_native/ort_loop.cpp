// A decode loop on onnxruntime-qnn as one would write it in C++: tensors bound once, the cache updated in place,
// nothing allocated between two steps. Reads a description of the artifact (benchmarks/runtime.py), prints the ids it
// chose.
//
// onnxruntime's C API is declared here as far as it is used: slots of a table to which later versions only append.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t kApiVersion = 22; // the first with plug-in execution providers

enum Slot : std::size_t {
    kGetErrorMessage = 2,
    kCreateEnv = 3,
    kCreateSession = 7,
    kCreateSessionOptions = 10,
    kSetIntraOpNumThreads = 24,
    kCreateTensorWithData = 49,
    kCreateCpuMemoryInfo = 69,
    kAddSessionConfigEntry = 130,
    kRunWithBinding = 133,
    kCreateIoBinding = 134,
    kBindInput = 136,
    kBindOutput = 137,
    kRegisterProviderLibrary = 301,
    kGetEpDevices = 303,
    kAppendProvider = 304,
    kEpDeviceName = 312,
};

struct ApiBase {
    const void* (*get_api)(std::uint32_t version);
    const char* (*version)();
};

using Status = void*;
using Object = void*;

void* const* api = nullptr;

template <typename Result, typename... Arguments>
Result call(Slot slot, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(api[slot])(arguments...);
}

template <typename... Arguments>
void check(Slot slot, Arguments... arguments) {
    if (Status status = call<Status>(slot, arguments...); status != nullptr) {
        std::fprintf(stderr, "onnxruntime: %s\n", call<const char*>(kGetErrorMessage, status));
        std::exit(1);
    }
}

struct Free {
    void operator()(std::uint8_t* memory) const noexcept { std::free(memory); }
};

using Memory = std::unique_ptr<std::uint8_t, Free>;

Memory allocate(std::size_t n_bytes) {
    const std::size_t padded = (n_bytes + 127) / 128 * 128;
    auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(128, padded));
    std::memset(memory, 0, padded);
    return Memory(memory);
}

std::vector<std::uint8_t> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct Description {
    std::string onnxruntime, provider, backend, model, cos, sin;
    std::size_t layers = 0, heads = 0, dim = 0, context = 0, vocabulary = 0, kv_bytes = 0, row_bytes = 0;
    int kv_type = 0, io_type = 0;
    std::uint32_t kv_zero = 0, masked = 0, visible = 0;
    std::vector<std::int32_t> tokens;
    std::size_t n_gen = 0;
};

Description read_description(const char* path) {
    Description d;
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string key;
        words >> key;
        if (key == "onnxruntime")
            std::getline(words >> std::ws, d.onnxruntime);
        if (key == "provider")
            std::getline(words >> std::ws, d.provider);
        if (key == "backend")
            std::getline(words >> std::ws, d.backend);
        if (key == "model")
            std::getline(words >> std::ws, d.model);
        if (key == "cos")
            std::getline(words >> std::ws, d.cos);
        if (key == "sin")
            std::getline(words >> std::ws, d.sin);
        if (key == "shape")
            words >> d.layers >> d.heads >> d.dim >> d.context >> d.vocabulary;
        if (key == "kv")
            words >> d.kv_type >> d.kv_bytes >> d.kv_zero;
        if (key == "io")
            words >> d.io_type >> d.masked >> d.visible;
        if (key == "gen")
            words >> d.n_gen;
        if (key == "tokens") {
            for (std::int32_t id = 0; words >> id;)
                d.tokens.push_back(id);
        }
    }
    return d;
}

class Session {
  public:
    explicit Session(const Description& d) {
        void* library = dlopen(d.onnxruntime.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library == nullptr) {
            std::fprintf(stderr, "%s\n", dlerror());
            std::exit(1);
        }
        const auto base = reinterpret_cast<const ApiBase* (*)()>(dlsym(library, "OrtGetApiBase"))();
        api = static_cast<void* const*>(base->get_api(kApiVersion));
        Object env = nullptr;
        check(kCreateEnv, 3, "bench", &env);
        check(kRegisterProviderLibrary, env, "QNNExecutionProvider", d.provider.c_str());
        const Object* devices = nullptr;
        std::size_t n_devices = 0;
        check(kGetEpDevices, static_cast<const void*>(env), &devices, &n_devices);
        Object device = nullptr;
        for (std::size_t i = 0; i < n_devices && device == nullptr; ++i) {
            const char* name = call<const char*>(kEpDeviceName, static_cast<const void*>(devices[i]));
            device = std::strcmp(name, "QNNExecutionProvider") == 0 ? devices[i] : nullptr;
        }
        Object options = nullptr;
        check(kCreateSessionOptions, &options);
        check(kSetIntraOpNumThreads, options, 1);
        check(kAddSessionConfigEntry, options, "session.disable_cpu_ep_fallback", "1");
        const char* keys[] = {"backend_path"};
        const char* values[] = {d.backend.c_str()};
        check(kAppendProvider, options, env, static_cast<const Object*>(&device), std::size_t{1},
              static_cast<const char* const*>(keys), static_cast<const char* const*>(values), std::size_t{1});
        check(kCreateSession, static_cast<const void*>(env), d.model.c_str(), static_cast<const void*>(options),
              &session_);
        check(kCreateIoBinding, session_, &binding_);
        check(kCreateCpuMemoryInfo, 1, 0, &info_); // arena allocator, default memory
    }

    std::uint8_t* bind(bool input, const std::string& name, int type, std::size_t element,
                       std::vector<std::int64_t> dims) {
        std::size_t n_bytes = element;
        for (const std::int64_t extent : dims) {
            n_bytes *= static_cast<std::size_t>(extent);
        }
        memory_.push_back(allocate(n_bytes));
        std::uint8_t* data = memory_.back().get();
        Object value = nullptr;
        check(kCreateTensorWithData, static_cast<const void*>(info_), static_cast<void*>(data), n_bytes,
              static_cast<const std::int64_t*>(dims.data()), dims.size(), type, &value);
        check(input ? kBindInput : kBindOutput, binding_, name.c_str(), static_cast<const void*>(value));
        return data;
    }

    void run() {
        check(kRunWithBinding, session_, static_cast<const void*>(nullptr), static_cast<const void*>(binding_));
    }

  private:
    Object session_ = nullptr;
    Object binding_ = nullptr;
    Object info_ = nullptr;
    std::vector<Memory> memory_;
};

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: ort-loop DESCRIPTION\n");
        return 2;
    }
    const Description d = read_description(argv[1]);
    Session session(d);
    const auto signed_of = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    const std::size_t columns = d.context - 1, half = d.dim / 2;
    auto* ids = reinterpret_cast<std::int32_t*>(session.bind(true, "input_ids", 6, 4, {1, 1}));
    auto* mask = reinterpret_cast<std::uint16_t*>(
        session.bind(true, "attention_mask", d.io_type, 2, {1, 1, 1, signed_of(d.context)}));
    std::uint8_t* cos = session.bind(true, "position_ids_cos", d.io_type, 2, {1, 1, 1, signed_of(half)});
    std::uint8_t* sin = session.bind(true, "position_ids_sin", d.io_type, 2, {1, 1, 1, signed_of(half)});
    const auto* logits = reinterpret_cast<const std::uint16_t*>(
        session.bind(false, "logits", d.io_type, 2, {1, 1, signed_of(d.vocabulary)}));

    struct Layer {
        std::uint8_t *past_keys, *past_values, *keys, *values;
    };

    std::vector<Layer> layers;
    for (std::size_t i = 0; i < d.layers; ++i) {
        const std::string key = "past_key_" + std::to_string(i), value = "past_value_" + std::to_string(i);
        const std::int64_t heads = signed_of(d.heads), dim = signed_of(d.dim);
        layers.push_back({
            session.bind(true, key + "_in", d.kv_type, d.kv_bytes, {heads, 1, dim, signed_of(columns)}),
            session.bind(true, value + "_in", d.kv_type, d.kv_bytes, {heads, 1, signed_of(columns), dim}),
            session.bind(false, key + "_out", d.kv_type, d.kv_bytes, {heads, 1, dim, 1}),
            session.bind(false, value + "_out", d.kv_type, d.kv_bytes, {heads, 1, 1, dim}),
        });
        if (d.kv_bytes == 1) {
            std::memset(layers.back().past_keys, static_cast<int>(d.kv_zero), d.heads * d.dim * columns);
            std::memset(layers.back().past_values, static_cast<int>(d.kv_zero), d.heads * d.dim * columns);
        }
    }
    const std::vector<std::uint8_t> cos_table = read_file(d.cos), sin_table = read_file(d.sin);
    std::fill_n(mask, d.context, static_cast<std::uint16_t>(d.masked));
    mask[d.context - 1] = static_cast<std::uint16_t>(d.visible);

    const auto step = [&](std::size_t position, std::int32_t id) {
        ids[0] = id;
        std::memcpy(cos, cos_table.data() + position * half * 2, half * 2);
        std::memcpy(sin, sin_table.data() + position * half * 2, half * 2);
        session.run();
        if (position < columns) {
            for (const Layer& layer : layers) {
                const auto store = [&](auto* past_keys, const auto* keys) {
                    for (std::size_t row = 0; row < d.heads * d.dim; ++row) {
                        past_keys[row * columns + position] = keys[row];
                    }
                };
                if (d.kv_bytes == 1) {
                    store(layer.past_keys, layer.keys);
                } else {
                    store(reinterpret_cast<std::uint16_t*>(layer.past_keys),
                          reinterpret_cast<const std::uint16_t*>(layer.keys));
                }
                const std::size_t row_bytes = d.dim * d.kv_bytes;
                for (std::size_t head = 0; head < d.heads; ++head) {
                    std::memcpy(layer.past_values + (head * columns + position) * row_bytes,
                                layer.values + head * row_bytes, row_bytes);
                }
            }
            mask[position] = static_cast<std::uint16_t>(d.visible);
        }
        return static_cast<std::int32_t>(std::max_element(logits, logits + d.vocabulary) - logits);
    };

    std::size_t position = 0;
    std::int32_t id = 0;
    for (const std::int32_t token : d.tokens) {
        id = step(position++, token);
    }
    std::vector<std::int32_t> chosen{id};
    chosen.reserve(d.n_gen);
    while (chosen.size() < d.n_gen) {
        id = step(position++, id);
        chosen.push_back(id);
    }
    for (const std::int32_t each : chosen) {
        std::printf("%d ", each);
    }
    std::printf("\n");
    std::fflush(stdout);
    std::exit(0); // libraries write their stamps; the session's objects go with the process
}
