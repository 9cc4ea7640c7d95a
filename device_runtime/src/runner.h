// The whole of one process: a job in, records out, an exit code at the end.
#pragma once

#include "file_descriptor.h"
#include "result.h"

#include <string>

namespace snapgate {

// Runs the job in `job_file`; records go to `stdout_fd` and `folder`/records.jsonl, logits to
// `folder`/logits.bin. Whatever happens, the last records are an error (where there was one) and the end with
// the exit code returned.
ExitCode run_job_file(const std::string& job_file, const std::string& folder, FileDescriptor stdout_fd);

// Opens the libraries and the device, records what they are, and ends.
ExitCode probe(const std::string& backend_library, const std::string& system_library,
               FileDescriptor stdout_fd);

} // namespace snapgate
