#include "sampler.h"

#include <algorithm>
#include <cmath>

namespace snapgate {

std::uint64_t SplitMix::next() noexcept {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

double SplitMix::uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

Sampler::Sampler(std::uint32_t vocab_size) : seen_(vocab_size), candidates_(vocab_size) {}

void Sampler::begin(const Sampling& settings) noexcept {
    settings_ = settings;
    random_ = SplitMix(settings.seed);
    std::fill(seen_.begin(), seen_.end(), std::uint8_t{0});
}

std::size_t Sampler::collect(const LogitsRow& row) noexcept {
    const std::size_t n_bytes = row.encoding.element_bytes();
    std::size_t n = 0;
    for (std::uint32_t id = 0; id < row.n_columns; ++id) {
        double logit = row.encoding.decode(load_raw(row.elements, id, n_bytes));
        if (seen_[id] != 0) {
            logit = logit > 0 ? logit / settings_.repetition_penalty : logit * settings_.repetition_penalty;
        }
        if (!std::isnan(logit)) {
            candidates_[n++] = {logit, id};
        }
    }
    return n;
}

std::size_t Sampler::keep_top_k(std::size_t n) noexcept {
    const std::size_t k = std::min<std::size_t>(settings_.top_k, n);
    const auto first = candidates_.begin();
    const auto end = first + static_cast<std::ptrdiff_t>(n);
    std::partial_sort(first, first + static_cast<std::ptrdiff_t>(k), end, is_better);
    return k;
}

// With top k the candidates are in order; without, a heap gives them one by one, for few are needed of many.
std::size_t Sampler::keep_top_p(std::size_t n, double greatest) noexcept {
    const auto first = candidates_.begin();
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) {
        total += std::exp(candidates_[i].logit - greatest);
    }
    const bool is_ordered = settings_.top_k > 0;
    const auto is_worse = [](const Candidate& a, const Candidate& b) { return is_better(b, a); };
    auto end = first + static_cast<std::ptrdiff_t>(n);
    if (!is_ordered) {
        std::make_heap(first, end, is_worse);
    }
    double sum = 0;
    std::size_t kept = 0;
    while (kept < n && sum < settings_.top_p * total) {
        if (!is_ordered) {
            std::pop_heap(first, end, is_worse); // to the end, where the best gather in rising order
            --end;
        }
        const Candidate& next = is_ordered ? candidates_[kept] : *end;
        sum += std::exp(next.logit - greatest);
        ++kept;
    }
    if (!is_ordered) {
        std::reverse(first, first + static_cast<std::ptrdiff_t>(n)); // the best come first, in falling order
    }
    return std::max<std::size_t>(kept, 1);
}

std::int32_t Sampler::choose(const LogitsRow& row) noexcept {
    std::size_t n = collect(row);
    const auto first = candidates_.begin();
    const auto best = std::min_element(first, first + static_cast<std::ptrdiff_t>(n), is_better);
    if (n == 0 || !std::isfinite(best->logit)) {
        return argmax(row);
    }
    const double greatest = best->logit / (settings_.temperature > 0 ? settings_.temperature : 1);
    if (settings_.temperature <= 0 || !std::isfinite(greatest)) { // so near to 0 that the quotient overflows
        return static_cast<std::int32_t>(best->id);
    }
    for (std::size_t i = 0; i < n; ++i) {
        candidates_[i].logit /= settings_.temperature;
    }
    if (settings_.top_k > 0) {
        n = keep_top_k(n);
    }
    if (settings_.top_p < 1) {
        n = keep_top_p(n, greatest);
    }
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) {
        total += std::exp(candidates_[i].logit - greatest);
    }
    const double target = random_.uniform() * total;
    double sum = 0;
    for (std::size_t i = 0; i + 1 < n; ++i) {
        sum += std::exp(candidates_[i].logit - greatest);
        if (sum > target) {
            return static_cast<std::int32_t>(candidates_[i].id);
        }
    }
    return static_cast<std::int32_t>(candidates_[n - 1].id);
}

} // namespace snapgate
