#include "command_line.h"

#include <map>

namespace snapgate {
namespace {

using Values = std::map<std::string, std::string>;

// Exactly the options of `names`, or a reason why not.
std::string missing_or_extra(const Values& values, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        if (values.count(name) == 0) {
            return name + " is missing";
        }
    }
    return values.size() == names.size() ? "" : "options that do not go together";
}

} // namespace

const char* usage_text() noexcept {
    return "usage: snapgate-runner --job JOB.json --out FOLDER [--dump-cache]\n"
           "       snapgate-runner --probe --backend libQnnHtp.so --system libQnnSystem.so\n"
           "       snapgate-runner --bandwidth\n"
           "       snapgate-runner --version\n"
           "Records go to stdout and FOLDER/records.jsonl as JSON Lines, logs to stderr.\n"
           "--bandwidth: how fast all processors together read memory, one line.\n"
           "--dump-cache: after the last prompt FOLDER/kv_cache.bin gets, layer by layer, the raw keys\n"
           "(n_kv_heads, head_dim, context - 1) and values (n_kv_heads, context - 1, head_dim).\n";
}

Command parse_command_line(const std::vector<std::string>& arguments) {
    if (arguments == std::vector<std::string>{"--version"}) {
        return ShowVersion{};
    }
    if (arguments == std::vector<std::string>{"--bandwidth"}) {
        return MeasureBandwidth{};
    }
    bool is_probe = false;
    bool dump_cache = false;
    Values values;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& name = arguments[i];
        if (name == "--probe") {
            is_probe = true;
            continue;
        }
        if (name == "--dump-cache") {
            dump_cache = true;
            continue;
        }
        if (name != "--job" && name != "--out" && name != "--backend" && name != "--system") {
            return UsageError{"unknown option '" + name + "'"};
        }
        if (i + 1 == arguments.size() || arguments[i + 1].empty()) {
            return UsageError{name + " needs a value"};
        }
        if (!values.emplace(name, arguments[++i]).second) {
            return UsageError{name + " is given twice"};
        }
    }
    const std::string reason =
        is_probe ? missing_or_extra(values, {"--backend", "--system"}) : missing_or_extra(values, {"--job", "--out"});
    if (!reason.empty()) {
        return UsageError{reason};
    }
    if (is_probe && dump_cache) {
        return UsageError{"options that do not go together"};
    }
    if (is_probe) {
        return Probe{values["--backend"], values["--system"]};
    }
    return RunJob{values["--job"], values["--out"], dump_cache};
}

} // namespace snapgate
