// outputs.bin: graph outputs that a prompt asks for by name, raw, as the graph wrote them, one copy a step. Copies are
// collected in memory while the clock runs and written between generations.
#pragma once

#include "aligned_buffer.h"
#include "file_descriptor.h"
#include "job.h"
#include "records.h"
#include "result.h"
#include "step_graph.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snapgate {

class OutputFile {
  public:
    // Creates `folder`/outputs.bin and takes room for the largest generation, once; without a prompt that asks for
    // outputs it is never called upon. TENSOR_MISMATCH: no graph has an output of that name.
    static Result<OutputFile> create(const std::string& folder, const std::vector<Prompt>& prompts,
                                     const std::vector<StepGraph>& steps);

    OutputFile() = default;

    // Forgets what was collected; from here on the outputs that `prompt` names are.
    void begin(const Prompt& prompt) noexcept;

    // Copies the named outputs of a step of `graph` that began at position `n_past`.
    void add(const StepGraph& graph, std::uint32_t n_past) noexcept;

    // Appends what was collected to the file and says where it is.
    Result<std::vector<OutputRecord>> write();

  private:
    // The copies of one output of one graph.
    struct Series {
        const StepGraph* graph;
        std::string name;
        GraphOutput output;
        std::uint64_t max_steps = 0;
        bool wanted = false;
        AlignedBuffer copies;
        std::vector<std::uint32_t> positions;
    };

    FileDescriptor file_;
    std::string path_;
    std::vector<Series> series_;
    std::uint64_t file_bytes_ = 0;
};

} // namespace snapgate
