// Chooses a token from a row of logits. The choice is a function of the logits, the settings and the seed alone:
//
//   1. repetition penalty: a positive logit of a token seen before (prompt or generated) is divided by it, a negative
//      one multiplied
//   2. temperature: every logit is divided by it; 0, or one so low that the greatest quotient is infinite, chooses the
//      greatest logit, the lowest id on a tie, and ends here
//   3. top k: only the k greatest stay, lower ids first on a tie; 0 keeps all
//   4. top p: of these, in falling order, only as many as are needed for a share of p of the probability
//   5. one is drawn in proportion to its probability, by a number u of [0, 1): the first in falling order (by id where
//      neither top k nor top p orders them) at which the sum of the shares exceeds u
//
// u are the upper 53 bits of splitmix64 (S. Vigna, public domain), started with the seed at each generation.
#pragma once

#include "logits.h"
#include "span.h"

#include <cstdint>
#include <vector>

namespace snapgate {

struct Sampling {
    double temperature = 1;
    std::uint32_t top_k = 0;
    double top_p = 1;
    double repetition_penalty = 1;
    std::uint64_t seed = 0;
};

class SplitMix {
  public:
    explicit SplitMix(std::uint64_t seed) noexcept : state_(seed) {}

    std::uint64_t next() noexcept;

    // Uniform in [0, 1).
    double uniform() noexcept;

  private:
    std::uint64_t state_;
};

class Sampler {
  public:
    // Takes all memory it will ever need.
    explicit Sampler(std::uint32_t vocab_size);

    // Starts the random numbers again. No token has been seen.
    void begin(const Sampling& settings) noexcept;

    void see(std::int32_t id) noexcept { seen_[static_cast<std::size_t>(id)] = 1; }

    // A NaN is never chosen; a row without a finite greatest logit gives its argmax.
    std::int32_t choose(const LogitsRow& row) noexcept;

  private:
    struct Candidate {
        double logit;
        std::uint32_t id;
    };

    static bool is_better(const Candidate& a, const Candidate& b) noexcept {
        return a.logit > b.logit || (!(a.logit < b.logit) && a.id < b.id);
    }

    std::size_t collect(const LogitsRow& row) noexcept;
    std::size_t keep_top_k(std::size_t n) noexcept;
    std::size_t keep_top_p(std::size_t n, double greatest) noexcept;

    Sampling settings_;
    SplitMix random_{0};
    std::vector<std::uint8_t> seen_;
    std::vector<Candidate> candidates_;
};

} // namespace snapgate
