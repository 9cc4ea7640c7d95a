#include "record_writer.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/resource.h>

using namespace snapgate;

namespace {

// No file may grow beyond `n_bytes` while this lives.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t n_bytes) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{n_bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }

    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

    ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

  private:
    rlimit before_{};
};

std::string new_folder() {
    std::string pattern = "/tmp/record_writer_test_XXXXXX";
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    return pattern;
}

} // namespace

TEST_CASE("a record that does not fit leaves no part of itself for the next one to end up in") {
    std::signal(SIGXFSZ, SIG_IGN);
    const std::string folder = new_folder();
    const std::string path = folder + "/records.jsonl";
    const PhaseRecord small{"read", "", 1, 2};
    RecordWriter records{FileDescriptor()};
    REQUIRE(records.open_folder(folder));
    REQUIRE(records.write(small));
    {
        const FileSizeLimit limit(to_line(small).size() + 20);
        const Status status = records.write(PhaseRecord{"read", std::string(1000, 'x'), 1, 2});
        REQUIRE_FALSE(status);
        CHECK(status.fault().code == ExitCode::kIoFailed);
        CHECK(status.fault().where == path);
    }
    REQUIRE(records.write(small));
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK(text == to_line(small) + "\n" + to_line(small) + "\n");
    CHECK(std::system(("rm -r " + folder).c_str()) == 0);
}
