#include "exit_codes.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace snapgate;

TEST_CASE("the exit codes are those of exit_codes.json, all of them and no others") {
    std::ifstream file(EXIT_CODES_FILE);
    REQUIRE(file);
    const auto expected = nlohmann::json::parse(file).at("runner");
    nlohmann::json found = nlohmann::json::object();
    for (const NamedExitCode& entry : kExitCodes) {
        found[entry.name] = static_cast<int>(entry.code);
    }
    CHECK(found == expected);
    CHECK(std::string(name_of(ExitCode::kArchMismatch)) == "ARCH_MISMATCH");
}
