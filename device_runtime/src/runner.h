// The whole of one process: a job in, records out, an exit code at the end.
#pragma once

#include "command_line.h"
#include "exit_codes.h"
#include "file_descriptor.h"

namespace snapgate {

// Runs a job; records go to `stdout_fd` and records.jsonl of the folder, logits to logits.bin. Whatever happens, the
// last records are an error (where there was one) and the end with the exit code returned.
ExitCode run_job_file(const RunJob& command, FileDescriptor stdout_fd);

// Opens the libraries and the device, records what they are, and ends.
ExitCode probe(const Probe& command, FileDescriptor stdout_fd);

} // namespace snapgate
