#include "exit_codes.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace snapgate;

TEST_CASE("the exit codes are those of exit_codes.json, all of them and no others") {
    std::ifstream file(EXIT_CODES_FILE);
    REQUIRE(file);
    const auto listed = nlohmann::json::parse(file);
    const auto expected = listed.at("runner");
    nlohmann::json found = nlohmann::json::object();
    for (const NamedExitCode& entry : kExitCodes) {
        found[entry.name] = static_cast<int>(entry.code);
        CHECK_FALSE(listed.at("runner_meaning").at(entry.name).get<std::string>().empty());
    }
    CHECK(listed.at("runner_meaning").size() == expected.size());
    CHECK(found == expected);
    CHECK(std::string(name_of(ExitCode::kArchMismatch)) == "ARCH_MISMATCH");
}
