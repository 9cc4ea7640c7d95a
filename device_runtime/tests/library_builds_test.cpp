#include "library_builds.h"

#include <catch2/catch.hpp>

using namespace snapgate;

namespace {

constexpr const char* kBuild = "v2.50.40.260831140417";

std::string foreign(const std::string& content) {
    return foreign_build({reinterpret_cast<const std::byte*>(content.data()), content.size()}, kBuild);
}

const std::string nul(1, '\0');

} // namespace

TEST_CASE("a library that names its own build, or none, is of one build") {
    CHECK(foreign("text v2.50.40.260831140417_clang") == "");
    CHECK(foreign("v1 v2 v2.50 v2.50.40 2.50.41") == "");
    CHECK(foreign("") == "");
    CHECK(foreign("v") == "");
    CHECK(foreign("ends with v2.50.40.26083114041") == "");
}

TEST_CASE("another build id is named") {
    CHECK(foreign("v2.50.40.260831140417 and v2.50.40.260831140418") == "v2.50.40.260831140418");
    CHECK(foreign("v2.49.0.260701000000") == "v2.49.0.260701000000");
}

TEST_CASE("a library without an id may carry the time of its build alone") {
    CHECK(foreign("a" + nul + "260831140417" + nul) == "");
    CHECK(foreign("a" + nul + "260701000000" + nul) == "build time 260701000000");
    CHECK(foreign("a" + nul + "260701000000" + nul + "260831140417" + nul) == "");
    CHECK(foreign("260701000000" + nul) == "");                // not alone
    CHECK(foreign(nul + "261301000000" + nul) == "");          // no month
    CHECK(foreign(nul + "2607010000001" + nul) == "");         // thirteen digits
    CHECK(foreign(nul + "260701000000" + nul + kBuild) == ""); // an id counts more
    CHECK(foreign("AISW_VERSION: 2.50.40" + nul + "260701000000" + nul) == "");
}

TEST_CASE("a backend without a proper build id is held against nothing") {
    CHECK(verify_library_builds(""));
    CHECK(verify_library_builds("standin-1"));
}
