// Runs one prompt: chunked prefill, then decoding or scoring. Single-threaded; nothing is allocated between the first
// prefill chunk and the last token.
#pragma once

#include "job.h"
#include "kv_cache.h"
#include "logits_file.h"
#include "output_file.h"
#include "pacer.h"
#include "records.h"
#include "result.h"
#include "sampler.h"
#include "stamp_file.h"
#include "step_graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace snapgate {

// Rows of logits that a prompt can produce at most.
std::uint64_t max_logits_rows(const Prompt& prompt) noexcept;

// Stamps that a prompt can produce at most.
std::uint64_t max_stamps(const Prompt& prompt) noexcept;

// Where a generation leaves what it collects. Borrowed; `logits` and `outputs` may be null when no prompt wants them.
struct Sinks {
    StampFile* stamps;
    LogitsFile* logits;
    OutputFile* outputs;
};

class Generator {
  public:
    // `graphs`: a step of each size, narrowest first, which is the AR-1 graph. All are borrowed.
    Generator(const JobModel& model, std::vector<StepGraph>& graphs, KvCache& cache, double pace_tps,
              const Sinks& sinks);

    // TERMINATED after the step during which a stop was asked for; EXECUTE_FAILED from the library, or when a score
    // is not a finite number; PROMPT_TOO_LONG when what is kept in the cache leaves too little room.
    Result<GenerationRecord> run(const Prompt& prompt, std::uint32_t repetition, bool warmup);

  private:
    Status prepare(const Prompt& prompt, GenerationRecord& record);
    StepGraph& next_prefill_graph(const Prompt& prompt, std::uint32_t n_past, std::size_t n_left) noexcept;
    Status prefill(const Prompt& prompt, GenerationRecord& record);
    Status generate(const Prompt& prompt, GenerationRecord& record);
    Status execute(StepGraph& graph, Span<const std::int32_t> tokens, GenerationRecord& record);
    Status store(StepGraph& graph, std::uint32_t n_tokens, GenerationRecord& record);
    Status score_rows(const StepGraph& graph, const Prompt& prompt, std::uint32_t first, std::uint32_t n_rows,
                      GenerationRecord& record);
    const char* stop_reason(const Prompt& prompt, std::int32_t id, std::uint32_t n_done) const noexcept;
    void lay_out(std::uint32_t columns, GenerationRecord& record) noexcept;

    const JobModel& model_;
    std::vector<StepGraph>& graphs_;
    StepGraph& single_;
    KvCache& cache_;
    Pacer pacer_;
    Sinks sinks_;
    Sampler sampler_;
    std::vector<std::int32_t> feed_;      // the tokens of the prompt, behind one that the round before left over
    std::optional<std::int32_t> pending_; // the last id generated, which no step has seen
    bool keeps_logits_ = false;
    bool keeps_outputs_ = false;
    LogitsRow last_row_; // of the last real token seen
    unsigned long n_steps_ = 0;
};

} // namespace snapgate
