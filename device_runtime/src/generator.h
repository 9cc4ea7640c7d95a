// Runs one prompt: chunked prefill, then greedy decoding or scoring. Single-threaded; nothing is allocated between
// the first prefill chunk and the last token.
#pragma once

#include "job.h"
#include "kv_cache.h"
#include "logits_file.h"
#include "records.h"
#include "result.h"
#include "stamp_file.h"
#include "step_graph.h"

#include <cstdint>

namespace snapgate {

// Rows of logits that a prompt can produce at most.
std::uint64_t max_logits_rows(const Prompt& prompt) noexcept;

// Stamps that a prompt can produce at most.
std::uint64_t max_stamps(const Prompt& prompt) noexcept;

class Generator {
  public:
    // `chunk` is the AR-N graph; it may be the AR-1 graph again when the artifact has no other. `logits_file` may be
    // null when no prompt wants its logits kept. All are borrowed.
    Generator(const JobModel& model, StepGraph& chunk, StepGraph& single, KvCache& cache, StampFile& stamps,
              LogitsFile* logits_file) noexcept
        : model_(model), chunk_(chunk), single_(single), cache_(cache), stamps_(stamps), logits_file_(logits_file) {}

    // TERMINATED after the step during which a stop was asked for; EXECUTE_FAILED from the library, or when a score
    // is not a finite number.
    Result<GenerationRecord> run(const Prompt& prompt, std::uint32_t repetition, bool warmup);

  private:
    StepGraph& next_prefill_graph(const Prompt& prompt) noexcept;
    Status prefill(const Prompt& prompt, GenerationRecord& record);
    Status generate(const Prompt& prompt, GenerationRecord& record);
    Status step(StepGraph& graph, Span<const std::int32_t> tokens, GenerationRecord& record);
    Status score_rows(const StepGraph& graph, const Prompt& prompt, std::uint32_t first, std::uint32_t n_rows,
                      GenerationRecord& record);
    void lay_out(std::uint32_t columns, GenerationRecord& record) noexcept;
    bool is_eos(std::int32_t id) const noexcept;

    const JobModel& model_;
    StepGraph& chunk_;
    StepGraph& single_;
    KvCache& cache_;
    StampFile& stamps_;
    LogitsFile* logits_file_;
    bool keeps_logits_ = false;
    LogitsRow last_row_; // of the last real token seen
    unsigned long n_steps_ = 0;
};

} // namespace snapgate
