#include "generator.h"

#include "heap_counter.h"
#include "progress.h"
#include "signals.h"

#include <algorithm>
#include <cmath>

namespace snapgate {
namespace {

GenerationRecord start_record(const Prompt& prompt, std::uint32_t repetition, bool warmup) {
    GenerationRecord record;
    record.prompt_id = prompt.prompt_id;
    record.mode = name_of(prompt.mode);
    record.repetition = repetition;
    record.warmup = warmup;
    record.step_with = name_of(prompt.step_with);
    record.n_prompt = prompt.tokens.size();
    record.prefill.reserve(prompt.tokens.size()); // one chunk per token at worst
    record.token_ns.reserve(prompt.n_gen);
    record.token_ids.reserve(prompt.n_gen);
    record.argmax_ids.reserve(prompt.n_gen);
    if (prompt.mode == PromptMode::kScore) {
        record.nll.reserve(prompt.tokens.size());
    }
    return record;
}

} // namespace

std::uint64_t max_logits_rows(const Prompt& prompt) noexcept {
    const std::uint64_t n_fed_back = prompt.n_gen > 0 ? prompt.n_gen - 1 : 0; // the last token is not fed
    return prompt.tokens.size() + n_fed_back;
}

std::uint64_t max_stamps(const Prompt& prompt) noexcept {
    constexpr std::uint64_t kRelayouts = 8; // more than any prompt needs
    return 1 + 2 * prompt.tokens.size() + kRelayouts + prompt.n_gen;
}

Result<GenerationRecord> Generator::run(const Prompt& prompt, std::uint32_t repetition, bool warmup) {
    GenerationRecord record = start_record(prompt, repetition, warmup);
    keeps_logits_ = prompt.keep_logits && logits_file_ != nullptr;
    if (keeps_logits_) {
        logits_file_->clear();
    }
    // Emptying the cache makes runs repeatable; a fresh process would not need it, so it is not timed.
    cache_.reset(prompt.step_with == StepWith::kChunk ? chunk_.past_columns() : single_.past_columns());

    const std::uint64_t allocations_before = heap_allocation_count();
    record.start_ns = monotonic_ns();
    stamps_.add(StampKind::kStart, record.start_ns);
    SNAPGATE_TRY(prefill(prompt, record));
    if (prompt.mode == PromptMode::kGenerate) {
        SNAPGATE_TRY(generate(prompt, record));
    } else {
        record.stop = "scored";
    }
    record.end_ns = monotonic_ns();
    record.heap_allocations = heap_allocation_count() - allocations_before;

    if (keeps_logits_) {
        auto written = logits_file_->write(last_row_.encoding);
        if (!written) {
            return std::move(written).fault();
        }
        record.logits = *std::move(written);
    }
    return record;
}

// The AR-N graph while its step still fits the context; the last few tokens go one by one.
StepGraph& Generator::next_prefill_graph(const Prompt& prompt) noexcept {
    const bool chunk_fits = cache_.length() <= chunk_.past_columns();
    return prompt.step_with == StepWith::kChunk && chunk_fits ? chunk_ : single_;
}

Status Generator::prefill(const Prompt& prompt, GenerationRecord& record) {
    const Span<const std::int32_t> tokens(prompt.tokens);
    for (std::uint32_t done = 0; done < tokens.size();) {
        StepGraph& graph = next_prefill_graph(prompt);
        const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(graph.n_tokens(), tokens.size() - done));
        PrefillChunk chunk{n, graph.n_tokens(), monotonic_ns(), 0};
        stamps_.add(StampKind::kChunk, chunk.start_ns, static_cast<std::int32_t>(n),
                    static_cast<std::int32_t>(graph.n_tokens()));
        SNAPGATE_TRY(step(graph, tokens.subspan(done, n), record));
        chunk.end_ns = monotonic_ns();
        stamps_.add(StampKind::kChunkEnd, chunk.end_ns);
        record.prefill.push_back(chunk);
        if (prompt.mode == PromptMode::kScore) {
            SNAPGATE_TRY(score_rows(graph, prompt, done, n, record));
        }
        done += n;
    }
    return {};
}

Status Generator::generate(const Prompt& prompt, GenerationRecord& record) {
    if (prompt.n_gen > 1 && cache_.length() < model_.context_length) {
        lay_out(single_.past_columns(),
                record); // before the first token is known, so that it counts into its time
    }
    for (std::uint32_t i = 0;; ++i) {
        const std::int32_t greedy = argmax(last_row_);
        const std::int32_t id = prompt.forced.empty() ? greedy : prompt.forced[i];
        const std::int64_t known_ns = monotonic_ns();
        stamps_.add(StampKind::kToken, known_ns, id, greedy);
        record.token_ns.push_back(known_ns);
        record.token_ids.push_back(id);
        record.argmax_ids.push_back(greedy);
        if (prompt.forced.empty() && !prompt.ignore_eos && is_eos(id)) {
            record.stop = "eos";
            return {};
        }
        if (i + 1 == prompt.n_gen) {
            record.stop = "length";
            return {};
        }
        if (cache_.length() == model_.context_length) {
            record.stop = "context";
            return {};
        }
        SNAPGATE_TRY(step(single_, Span<const std::int32_t>(&id, 1), record));
    }
}

Status Generator::step(StepGraph& graph, Span<const std::int32_t> tokens, GenerationRecord& record) {
    const auto n_tokens = static_cast<std::uint32_t>(tokens.size());
    lay_out(graph.past_columns(), record);
    set_progress("graph execution", ++n_steps_, Watch::kYes);
    SNAPGATE_TRY(graph.step(tokens, cache_.length()));
    set_progress("generation", n_steps_, Watch::kYes);
    if (cache_.needs_more_columns(n_tokens)) {
        lay_out(cache_.max_columns(), record);
    }
    cache_.append(graph.kv_outputs(), graph.n_tokens(), n_tokens);
    last_row_ = graph.logits(n_tokens - 1);
    if (keeps_logits_) {
        for (std::uint32_t row = 0; row < n_tokens; ++row) {
            logits_file_->add(graph.logits(row));
        }
    }
    return terminated_if_asked("generation");
}

Status Generator::score_rows(const StepGraph& graph, const Prompt& prompt, std::uint32_t first, std::uint32_t n_rows,
                             GenerationRecord& record) {
    for (std::uint32_t row = 0; row < n_rows && first + row + 1 < prompt.tokens.size(); ++row) {
        const double nll = negative_log_likelihood(graph.logits(row), prompt.tokens[first + row + 1]);
        if (!std::isfinite(nll)) {
            return Fault{
                ExitCode::kExecuteFailed,
                "prompt '" + prompt.prompt_id + "' position " + std::to_string(first + row),
                "the model's probability of the next token is not a positive number",
                std::isnan(nll) ? "NaN logits" : "an infinite logit",
                "finite logits",
                "look for an overflow: compare the layers with the reference",
            };
        }
        record.nll.push_back(nll);
    }
    return {};
}

void Generator::lay_out(std::uint32_t columns, GenerationRecord& record) noexcept {
    const std::int64_t start = monotonic_ns();
    if (cache_.use_columns(columns)) {
        record.relayout_ns += monotonic_ns() - start;
        stamps_.add(StampKind::kRelayout, record.relayout_ns);
    }
}

bool Generator::is_eos(std::int32_t id) const noexcept {
    return std::find(model_.eos_ids.begin(), model_.eos_ids.end(), id) != model_.eos_ids.end();
}

} // namespace snapgate
