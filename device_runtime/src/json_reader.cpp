#include "json_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace snapgate {
namespace {

constexpr int kMaxDepth = 16; // a job is 7 deep
constexpr std::size_t kMaxShown = 80;
constexpr std::size_t kMaxReason = 300; // a parser's message repeats what it read, of any length

std::string quoted(const std::string& text) { return "'" + text + "'"; }

} // namespace

void refuse(const std::string& path, std::string what, std::string found, std::string expected) {
    throw JsonRefusal{Fault{
        ExitCode::kJobInvalid,
        path,
        std::move(what),
        std::move(found),
        std::move(expected),
        "write the job with the same version of SnapGate",
    }};
}

std::string shown(const nlohmann::json& value) {
    if (value.is_object() || value.is_array()) {
        return std::string("an ") + value.type_name() + " of " + std::to_string(value.size());
    }
    std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (text.size() > kMaxShown) {
        text.resize(kMaxShown);
        text += "...";
    }
    return text;
}

nlohmann::json parse_json(const std::string& text) {
    using Event = nlohmann::json::parse_event_t;
    std::vector<std::set<std::string>> keys_by_depth;
    const auto check = [&keys_by_depth](int depth, Event event, nlohmann::json& parsed) {
        if (depth > kMaxDepth) {
            refuse("job", "the JSON is nested too deeply", "more than " + std::to_string(kMaxDepth) + " levels",
                   "a job");
        }
        if (event == Event::object_start) {
            keys_by_depth.emplace_back();
        } else if (event == Event::object_end) {
            keys_by_depth.pop_back();
        } else if (event == Event::key) {
            const auto key = parsed.get<std::string>();
            if (!keys_by_depth.back().insert(key).second) {
                refuse("job", "a field occurs twice in one object", quoted(key.substr(0, kMaxShown)),
                       "each field once");
            }
        }
        return true;
    };
    try {
        return nlohmann::json::parse(text, check);
    } catch (const nlohmann::json::exception& error) {
        refuse("job", "the job is not JSON", std::string(error.what()).substr(0, kMaxReason), "a JSON document");
    }
}

ObjectReader::ObjectReader(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) {
        refuse(path_, "wrong type", shown(object), "an object");
    }
}

const nlohmann::json& ObjectReader::field(const char* key) {
    seen_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) {
        refuse(path_of(key), "a field is missing", "nothing", quoted(key));
    }
    return *found;
}

const nlohmann::json& ObjectReader::array(const char* key) {
    const nlohmann::json& value = field(key);
    if (!value.is_array()) {
        refuse(path_of(key), "wrong type", shown(value), "an array");
    }
    return value;
}

std::string ObjectReader::string(const char* key) {
    const nlohmann::json& value = field(key);
    if (!value.is_string()) {
        refuse(path_of(key), "wrong type", shown(value), "a string");
    }
    auto text = value.get<std::string>();
    if (text.find('\0') != std::string::npos) {
        refuse(path_of(key), "wrong value", "a string with a NUL character", "a string without one");
    }
    return text;
}

std::string ObjectReader::sha256(const char* key) {
    auto text = string(key);
    const bool is_hex =
        std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
    if (text.size() != 64 || !is_hex) {
        refuse(path_of(key), "wrong value", shown(field(key)), "64 lower-case hexadecimal digits");
    }
    return text;
}

double ObjectReader::number(const char* key) {
    const nlohmann::json& value = field(key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!std::isfinite(number)) {
        refuse(path_of(key), value.is_number() ? "wrong value" : "wrong type", shown(value), "a finite number");
    }
    return number;
}

bool ObjectReader::boolean(const char* key) {
    const nlohmann::json& value = field(key);
    if (!value.is_boolean()) {
        refuse(path_of(key), "wrong type", shown(value), "true or false");
    }
    return value.get<bool>();
}

std::size_t ObjectReader::choice(const char* key, const std::vector<const char*>& names) {
    const std::string text = string(key);
    std::string expected;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (text == names[i]) {
            return i;
        }
        expected += (i == 0 ? "" : " or ") + quoted(names[i]);
    }
    refuse(path_of(key), "wrong value", shown(field(key)), expected);
}

void ObjectReader::finish() const {
    for (const auto& [key, value] : object_.items()) {
        if (seen_.count(key) == 0) {
            refuse(path_of(key.substr(0, kMaxShown)), "an unknown field", shown(value),
                   "only fields of " + std::string("the schema"));
        }
    }
}

} // namespace snapgate
