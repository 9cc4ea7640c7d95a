#include "generator.h"

#include "heap_counter.h"
#include "progress.h"
#include "signals.h"

#include <algorithm>
#include <cmath>

namespace snapgate {
namespace {

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) noexcept {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

GenerationRecord start_record(const Prompt& prompt, std::uint32_t repetition, bool warmup) {
    GenerationRecord record;
    record.prompt_id = prompt.prompt_id;
    record.mode = name_of(prompt.mode);
    record.repetition = repetition;
    record.warmup = warmup;
    record.step_with = name_of(prompt.step_with);
    record.n_prompt = prompt.tokens.size();
    record.prefill.reserve(prompt.tokens.size() + 1); // one chunk per token at worst, and a token carried over
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
    return prompt.tokens.size() + (prompt.keep_cache ? 1 : 0) + n_fed_back;
}

std::uint64_t max_stamps(const Prompt& prompt) noexcept {
    constexpr std::uint64_t kRelayouts = 2 * kMaxGraphSizes; // more than any prompt needs
    return 1 + 2 * (prompt.tokens.size() + 1) + kRelayouts + prompt.n_gen;
}

Generator::Generator(const JobModel& model, std::vector<StepGraph>& graphs, KvCache& cache, double pace_tps,
                     const Sinks& sinks)
    : model_(model), graphs_(graphs), single_(graphs.front()), cache_(cache), pacer_(pace_tps), sinks_(sinks),
      sampler_(model.vocab_size) {
    feed_.reserve(model.context_length + 1U);
}

Result<GenerationRecord> Generator::run(const Prompt& prompt, std::uint32_t repetition, bool warmup) {
    GenerationRecord record = start_record(prompt, repetition, warmup);
    SNAPGATE_TRY(prepare(prompt, record));

    const std::uint64_t allocations_before = heap_allocation_count();
    record.start_ns = monotonic_ns();
    sinks_.stamps->add(StampKind::kStart, record.start_ns);
    SNAPGATE_TRY(prefill(prompt, record));
    if (prompt.mode == PromptMode::kGenerate) {
        SNAPGATE_TRY(generate(prompt, record));
        pending_ = record.token_ids.back();
    } else {
        record.stop = "scored";
    }
    record.end_ns = monotonic_ns();
    record.heap_allocations = heap_allocation_count() - allocations_before;
    set_progress("between generations", n_steps_, Watch::kNo);

    if (keeps_logits_) {
        auto written = sinks_.logits->write(last_row_.encoding);
        if (!written) {
            return std::move(written).fault();
        }
        record.logits = *std::move(written);
        record.logits->first_position = record.n_cached;
    }
    if (keeps_outputs_) {
        auto written = sinks_.outputs->write();
        if (!written) {
            return std::move(written).fault();
        }
        record.outputs = *std::move(written);
    }
    return record;
}

// Everything that is not timed: a fresh process would not need to empty or fill the cache.
Status Generator::prepare(const Prompt& prompt, GenerationRecord& record) {
    keeps_logits_ = prompt.keep_logits && sinks_.logits != nullptr;
    if (keeps_logits_) {
        sinks_.logits->clear();
    }
    keeps_outputs_ = !prompt.outputs.empty() && sinks_.outputs != nullptr;
    if (keeps_outputs_) {
        sinks_.outputs->begin(prompt);
    }
    feed_.clear();
    if (prompt.keep_cache) {
        if (pending_) {
            feed_.push_back(*pending_);
            record.n_carried = 1;
        }
    } else {
        cache_.reset(next_prefill_graph(prompt, prompt.n_cached, prompt.tokens.size()).past_columns());
        cache_.fill(prompt.n_cached);
    }
    pending_.reset();
    record.n_cached = cache_.length();
    const std::uint64_t n_needed = cache_.length() + feed_.size() + prompt.tokens.size();
    if (n_needed > model_.context_length) {
        return Fault{
            ExitCode::kPromptTooLong,
            "prompt '" + prompt.prompt_id + "'",
            "the prompt does not fit behind what is in the cache",
            std::to_string(cache_.length()) + " tokens in the cache and " +
                std::to_string(feed_.size() + prompt.tokens.size()) + " more",
            "at most " + std::to_string(model_.context_length) + " in all",
            "keep fewer rounds, or prepare the model with a longer context",
        };
    }
    feed_.insert(feed_.end(), prompt.tokens.begin(), prompt.tokens.end());
    if (prompt.sampling) {
        sampler_.begin(*prompt.sampling);
        for (const std::int32_t id : feed_) {
            sampler_.see(id);
        }
    }
    return {};
}

// Of the AR-N graphs whose step still fits the context, the narrowest that takes all that is left, or else the widest.
// Where none fits, the last few tokens go one by one.
StepGraph& Generator::next_prefill_graph(const Prompt& prompt, std::uint32_t n_past, std::size_t n_left) noexcept {
    StepGraph* chosen = &single_;
    for (StepGraph& graph : graphs_) {
        const bool usable = graph.n_tokens() > 1 && n_past <= graph.past_columns();
        if (usable && prompt.step_with == StepWith::kChunk) {
            chosen = &graph;
            if (graph.n_tokens() >= n_left) {
                break;
            }
        }
    }
    return *chosen;
}

Status Generator::prefill(const Prompt& prompt, GenerationRecord& record) {
    const Span<const std::int32_t> tokens(feed_);
    for (std::uint32_t done = 0; done < tokens.size();) {
        StepGraph& graph = next_prefill_graph(prompt, cache_.length(), tokens.size() - done);
        const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(graph.n_tokens(), tokens.size() - done));
        PrefillChunk chunk{n, graph.n_tokens(), monotonic_ns(), 0};
        sinks_.stamps->add(StampKind::kChunk, chunk.start_ns, static_cast<std::int32_t>(n),
                           static_cast<std::int32_t>(graph.n_tokens()));
        SNAPGATE_TRY(execute(graph, tokens.subspan(done, n), record));
        chunk.end_ns = monotonic_ns();
        sinks_.stamps->add(StampKind::kChunkEnd, chunk.end_ns);
        record.prefill.push_back(chunk);
        const bool is_last = done + n == tokens.size();
        if (is_last && prompt.n_gen > 1) {
            // Before the chunk is stored, so that its rows need not move: after a single chunk nothing moves at all.
            // And before the first token is known, so that it counts into its time.
            lay_out(single_.past_columns(), record);
        }
        SNAPGATE_TRY(store(graph, n, record));
        if (prompt.mode == PromptMode::kScore) {
            SNAPGATE_TRY(score_rows(graph, prompt, done, n, record));
        }
        done += n;
    }
    return {};
}

Status Generator::generate(const Prompt& prompt, GenerationRecord& record) {
    for (std::uint32_t i = 0;; ++i) {
        const std::int32_t greedy = argmax(last_row_);
        std::int32_t id = greedy;
        if (!prompt.forced.empty()) {
            id = prompt.forced[i];
        } else if (prompt.sampling) {
            id = sampler_.choose(last_row_);
            sampler_.see(id);
        }
        const std::int64_t known_ns = monotonic_ns();
        sinks_.stamps->add(StampKind::kToken, known_ns, id, greedy);
        record.token_ns.push_back(known_ns);
        record.token_ids.push_back(id);
        record.argmax_ids.push_back(greedy);
        if (const char* reason = stop_reason(prompt, id, i + 1); reason != nullptr) {
            record.stop = reason;
            return {};
        }
        if (i == 0) {
            pacer_.begin(known_ns);
        }
        record.pace_ns += pacer_.wait(monotonic_ns);
        SNAPGATE_TRY(execute(single_, Span<const std::int32_t>(&id, 1), record));
        SNAPGATE_TRY(store(single_, 1, record));
    }
}

const char* Generator::stop_reason(const Prompt& prompt, std::int32_t id, std::uint32_t n_done) const noexcept {
    if (prompt.forced.empty() && !prompt.ignore_eos && contains(model_.eos_ids, id)) {
        return "eos";
    }
    if (prompt.forced.empty() && contains(prompt.stop_ids, id)) {
        return "stop_id";
    }
    if (n_done == prompt.n_gen) {
        return "length";
    }
    return cache_.length() == model_.context_length ? "context" : nullptr;
}

// One step of a graph at the end of the cache; what it wrote is stored by `store`.
Status Generator::execute(StepGraph& graph, Span<const std::int32_t> tokens, GenerationRecord& record) {
    SNAPGATE_TRY(terminated_if_asked("generation"));
    lay_out(graph.past_columns(), record);
    set_progress("graph execution", ++n_steps_, Watch::kYes);
    SNAPGATE_TRY(graph.step(tokens, cache_.length()));
    set_progress("generation", n_steps_, Watch::kYes);
    last_row_ = graph.logits(static_cast<std::uint32_t>(tokens.size()) - 1);
    return {};
}

Status Generator::store(StepGraph& graph, std::uint32_t n_tokens, GenerationRecord& record) {
    if (keeps_outputs_) {
        sinks_.outputs->add(graph, cache_.length());
    }
    if (cache_.needs_more_columns(n_tokens)) {
        lay_out(cache_.max_columns(), record);
    }
    cache_.append(graph.kv_outputs(), graph.n_tokens(), n_tokens);
    if (keeps_logits_) {
        for (std::uint32_t row = 0; row < n_tokens; ++row) {
            sinks_.logits->add(graph.logits(row));
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
        sinks_.stamps->add(StampKind::kRelayout, record.relayout_ns);
    }
}

} // namespace snapgate
