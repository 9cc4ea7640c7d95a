// Reads one JSON object strictly: each field once, of the right type, in range, and none that is unknown.
#pragma once

#include "result.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace snapgate {

// Thrown inside job_parser.cpp only, and caught there.
struct JsonRefusal {
    Fault fault;
};

[[noreturn]] void refuse(const std::string& path, std::string what, std::string found, std::string expected);

// JSON text as a document. Refuses malformed text, repeated keys and nesting deeper than a job needs.
nlohmann::json parse_json(const std::string& text);

// A value as a short text for an error message.
std::string shown(const nlohmann::json& value);

template <typename Integer>
Integer read_integer(const nlohmann::json& value, const std::string& path, Integer lowest, Integer highest) {
    const std::string expected = "an integer from " + std::to_string(lowest) + " to " + std::to_string(highest);
    if (value.is_number_unsigned()) {
        const auto number = value.get<std::uint64_t>();
        if (highest >= 0 && number <= static_cast<std::uint64_t>(highest) &&
            (lowest <= 0 || number >= static_cast<std::uint64_t>(lowest))) {
            return static_cast<Integer>(number);
        }
    } else if (value.is_number_integer() && std::numeric_limits<Integer>::is_signed) {
        const auto number = value.get<std::int64_t>(); // negative: nlohmann keeps the others unsigned
        if (number >= static_cast<std::int64_t>(lowest) && number <= static_cast<std::int64_t>(highest)) {
            return static_cast<Integer>(number);
        }
    }
    refuse(path, "wrong value", shown(value), expected);
}

class ObjectReader {
  public:
    ObjectReader(const nlohmann::json& object, std::string path);

    std::string path_of(const std::string& key) const { return path_ + "." + key; }

    bool has(const char* key) const { return object_.contains(key); }

    const nlohmann::json& field(const char* key);
    const nlohmann::json& array(const char* key);
    std::string string(const char* key);
    std::string sha256(const char* key);
    double number(const char* key);
    bool boolean(const char* key);

    template <typename Integer>
    Integer integer(const char* key, Integer lowest, Integer highest) {
        return read_integer<Integer>(field(key), path_of(key), lowest, highest);
    }

    // One of `names`; returns its index.
    std::size_t choice(const char* key, const std::vector<const char*>& names);

    // Call last: refuses a field that was never asked for.
    void finish() const;

  private:
    const nlohmann::json& object_;
    std::string path_;
    std::set<std::string> seen_;
};

} // namespace snapgate
