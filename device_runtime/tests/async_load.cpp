// Loads a job's model on a thread of its own, as an embedding program would: async_load JOB.json [MS | drop]
// Cancels after MS milliseconds, or drops the loader without taking what it loads. Says on stderr what came of it.
#include "job.h"
#include "session_loader.h"
#include "signals.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unistd.h>

int main(int argc, char** argv) {
    using namespace snapgate;
    install_signal_handlers();
    std::ifstream file(argc > 1 ? argv[1] : "");
    const auto job = parse_job(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!job) {
        std::fprintf(stderr, "no job: %s\n", job.fault().what.c_str());
        return 2;
    }
    RecordWriter records{FileDescriptor(dup(STDOUT_FILENO))};
    auto loader = SessionLoader::start(*job, records);
    if (!loader) {
        return 3;
    }
    if (argc > 2 && std::strcmp(argv[2], "drop") == 0) {
        return 0; // the loader's end waits, and frees what is loaded
    }
    int n_waits = 0;
    while (!loader->ready_within(std::chrono::milliseconds(10))) {
        ++n_waits;
        if (argc > 2 && n_waits * 10 >= std::atoi(argv[2])) {
            loader->cancel();
        }
    }
    auto session = loader->take();
    if (!session) {
        const Fault& fault = session.fault();
        std::fprintf(stderr, "fault %s where %s: %s\n", name_of(fault.code), fault.where.c_str(), fault.what.c_str());
        return static_cast<int>(fault.code);
    }
    std::fprintf(stderr, "loaded %zu steps, waited %d times\n", (*session)->graphs().size(), n_waits);
    return 0;
}
