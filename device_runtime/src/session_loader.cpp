#include "session_loader.h"

#include "guarded.h"

#include <system_error>

namespace snapgate {

Result<SessionLoader> SessionLoader::start(const Job& job, RecordWriter& records) {
    SessionLoader loader;
    try {
        loader.future_ = std::async(std::launch::async, [&job, &records, cancelled = loader.cancelled_.get()] {
            return guarded<Outcome>([&] { return Session::load(job, {records, cancelled}); });
        });
    } catch (const std::system_error& error) {
        return Fault{
            ExitCode::kInternal, "session loader", "no thread can be started",
            error.what(),        "a thread",       "close other apps, or load on the calling thread",
        };
    }
    return loader;
}

SessionLoader::~SessionLoader() {
    if (cancelled_ != nullptr) { // else moved from
        cancel();
    }
}

} // namespace snapgate
