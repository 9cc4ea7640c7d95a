#include "records.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace snapgate;

namespace {

bool is_one_ascii_line(const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

} // namespace

TEST_CASE("strings from outside cannot break a line or its JSON") {
    ContextRecord record;
    record.file = "a\"b\\c\nd\x01";
    record.build_id = "\xff\xfe not UTF-8 \xc3\xa9";
    record.graphs = {"\r\n{\"type\":\"end\"}"};
    const std::string line = to_line(record);
    CHECK(is_one_ascii_line(line));
    const auto json = nlohmann::json::parse(line);
    CHECK(json["type"] == "context");
    CHECK(json["file"] == "a\"b\\c\nd\x01");
    CHECK(json["build_id"] == "\xef\xbf\xbd\xef\xbf\xbd not UTF-8 \xc3\xa9");
    CHECK(json["graphs"][0] == "\r\n{\"type\":\"end\"}");
}

TEST_CASE("what was not measured is null, never 0") {
    MemoryRecord memory;
    memory.at = "end";
    memory.vm_rss_bytes = 5;
    const auto json = nlohmann::json::parse(to_line(memory));
    CHECK(json["vm_rss_bytes"] == 5);
    CHECK(json["vm_hwm_bytes"].is_null());
    CHECK(nlohmann::json::parse(to_line(GenerationRecord{}))["logits"].is_null());
}

TEST_CASE("an error record carries our code and the QNN code with its name") {
    const auto with = nlohmann::json::parse(
        to_line(Fault{ExitCode::kExecuteFailed, "ar64", "graphExecute failed", "f", "e", "n", 6031}));
    CHECK(with["error"] == "EXECUTE_FAILED");
    CHECK(with["exit_code"] == 26);
    CHECK(with["qnn_code"] == 6031);
    CHECK(with["qnn_name"] == "GRAPH_ABORTED");
    const auto without = nlohmann::json::parse(to_line(Fault{}));
    CHECK(without["qnn_code"].is_null());
    CHECK(without["qnn_name"].is_null());
}

TEST_CASE("64-bit times keep every digit") {
    PhaseRecord phase{"read", "", 9223372036854775807, 1};
    CHECK(to_line(phase).find("9223372036854775807") != std::string::npos);
}
