#include "command_line.h"

#include <catch2/catch.hpp>

using namespace snapgate;

namespace {

std::string usage_error(const std::vector<std::string>& arguments) {
    const Command command = parse_command_line(arguments);
    const auto* error = std::get_if<UsageError>(&command);
    return error == nullptr ? "" : error->reason;
}

} // namespace

TEST_CASE("a job needs its file and a folder, in any order") {
    const Command command = parse_command_line({"--out", "results", "--job", "job.json"});
    const auto* run = std::get_if<RunJob>(&command);
    REQUIRE(run != nullptr);
    CHECK(run->job_file == "job.json");
    CHECK(run->folder == "results");
    CHECK_FALSE(run->dump_cache);
    const Command dumping = parse_command_line({"--dump-cache", "--out", "results", "--job", "job.json"});
    CHECK(std::get<RunJob>(dumping).dump_cache);
    CHECK(usage_error({"--probe", "--dump-cache", "--backend", "a", "--system", "b"}) ==
          "options that do not go together");
}

TEST_CASE("a probe needs both libraries") {
    const Command command = parse_command_line({"--probe", "--backend", "a.so", "--system", "b.so"});
    const auto* probe = std::get_if<Probe>(&command);
    REQUIRE(probe != nullptr);
    CHECK(probe->backend_library == "a.so");
    CHECK(probe->system_library == "b.so");
    CHECK(usage_error({"--probe", "--backend", "a.so"}) == "--system is missing");
}

TEST_CASE("version and bandwidth stand alone") {
    CHECK(std::holds_alternative<MeasureBandwidth>(parse_command_line({"--bandwidth"})));
    CHECK(usage_error({"--bandwidth", "--probe"}) == "unknown option '--bandwidth'");
    CHECK(std::holds_alternative<ShowVersion>(parse_command_line({"--version"})));
    CHECK(usage_error({"--version", "--probe"}) == "unknown option '--version'");
}

TEST_CASE("what is wrong with a command line is named") {
    CHECK(usage_error({}) == "--job is missing");
    CHECK(usage_error({"--job", "j"}) == "--out is missing");
    CHECK(usage_error({"--job"}) == "--job needs a value");
    CHECK(usage_error({"--job", ""}) == "--job needs a value");
    CHECK(usage_error({"--jobs", "j"}) == "unknown option '--jobs'");
    CHECK(usage_error({"--job", "a", "--job", "b"}) == "--job is given twice");
    CHECK(usage_error({"--job", "a", "--out", "b", "--system", "c"}) == "options that do not go together");
}
