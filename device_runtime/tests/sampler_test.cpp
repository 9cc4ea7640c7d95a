#include "sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace snapgate;

namespace {

// float32 logits whose probabilities a reader can name: ln of the weights.
class Row {
  public:
    explicit Row(const std::vector<float>& logits) : logits_(logits) {}

    static Row of_weights(const std::vector<float>& weights) {
        std::vector<float> logits(weights.size());
        std::transform(weights.begin(), weights.end(), logits.begin(), [](float w) { return std::log(w); });
        return Row(logits);
    }

    LogitsRow view() const {
        return {reinterpret_cast<const std::byte*>(logits_.data()), static_cast<std::uint32_t>(logits_.size()),
                Encoding{DType::kFloat32, 1.0, 0}};
    }

  private:
    std::vector<float> logits_;
};

// How often each id is chosen in `n` draws.
std::vector<int> counts(const Row& row, const Sampling& settings, int n = 40000) {
    Sampler sampler(row.view().n_columns);
    sampler.begin(settings);
    std::vector<int> result(row.view().n_columns);
    for (int i = 0; i < n; ++i) {
        ++result[static_cast<std::size_t>(sampler.choose(row.view()))];
    }
    return result;
}

// Within five standard deviations of the share `p` of `n` draws.
bool is_near(int count, double p, int n = 40000) {
    const double expected = p * n;
    return std::abs(count - expected) < 5 * std::sqrt(n * p * (1 - p)) + 1e-9;
}

} // namespace

TEST_CASE("the random numbers are those of splitmix64") {
    SplitMix random(1234567); // the first values for this seed are published with the algorithm
    CHECK(random.next() == 6457827717110365317U);
    CHECK(random.next() == 3203168211198807973U);
    CHECK(random.next() == 9817491932198370423U);
}

TEST_CASE("tokens are drawn in proportion to their probability") {
    const auto n = counts(Row::of_weights({1, 2, 3, 4}), {1, 0, 1, 1, 7});
    CHECK(is_near(n[0], 0.1));
    CHECK(is_near(n[1], 0.2));
    CHECK(is_near(n[2], 0.3));
    CHECK(is_near(n[3], 0.4));
}

TEST_CASE("a temperature of one half squares the weights") {
    const auto n = counts(Row::of_weights({1, 3}), {0.5, 0, 1, 1, 7});
    CHECK(is_near(n[0], 0.1)); // 1 : 9
    CHECK(is_near(n[1], 0.9));
}

TEST_CASE("temperature 0 is greedy, the lowest id on a tie") {
    const auto n = counts(Row::of_weights({1, 4, 4}), {0, 0, 1, 1, 7}, 100);
    CHECK(n == std::vector<int>{0, 100, 0});
}

TEST_CASE("top k keeps the greatest and shares out among them") {
    const auto n = counts(Row::of_weights({1, 6, 1, 2}), {1, 2, 1, 1, 7});
    CHECK(n[0] + n[2] == 0);
    CHECK(is_near(n[1], 0.75)); // 6 : 2
    CHECK(is_near(n[3], 0.25));
}

TEST_CASE("top p keeps as few as are needed, with and without top k") {
    const std::vector<float> weights = {1, 5, 1, 3}; // in falling order 5, 3, 1, 1 of 10
    for (const std::uint32_t top_k : {0U, 4U}) {
        const auto needed = counts(Row::of_weights(weights), {1, top_k, 0.7, 1, 7}); // 0.5 is too little, 0.8 enough
        CHECK(needed[0] + needed[2] == 0);
        CHECK(is_near(needed[1], 0.625));
        CHECK(is_near(needed[3], 0.375));
        const auto one = counts(Row::of_weights(weights), {1, top_k, 0.4, 1, 7}, 100);
        CHECK(one[1] == 100);
    }
    // Top p counts shares of what top k left: 5 : 3, of which 5 is 0.625.
    const auto both = counts(Row::of_weights(weights), {1, 2, 0.6, 1, 7}, 100);
    CHECK(both[1] == 100);
}

TEST_CASE("the repetition penalty divides what is positive and multiplies what is negative") {
    const Row row({2.0F, 1.5F, -1.0F});
    Sampler sampler(3);
    sampler.begin({0, 0, 1, 2, 0});
    CHECK(sampler.choose(row.view()) == 0);
    sampler.see(0); // 2.0 becomes 1.0
    CHECK(sampler.choose(row.view()) == 1);
    sampler.see(1); // 1.5 becomes 0.75
    CHECK(sampler.choose(row.view()) == 0);

    const Row negative({-1.0F, -1.5F});
    sampler = Sampler(2);
    sampler.begin({0, 0, 1, 2, 0});
    sampler.see(0); // -1 becomes -2
    CHECK(sampler.choose(negative.view()) == 1);
    sampler.begin({0, 0, 1, 2, 0}); // nothing is seen any more
    CHECK(sampler.choose(negative.view()) == 0);
}

TEST_CASE("the same seed draws the same tokens, another seed others") {
    const Row row = Row::of_weights(std::vector<float>(50, 1));
    const auto draw = [&row](std::uint64_t seed) {
        Sampler sampler(50);
        sampler.begin({1, 0, 0.9, 1, seed});
        std::vector<std::int32_t> ids(20);
        std::generate(ids.begin(), ids.end(), [&] { return sampler.choose(row.view()); });
        return ids;
    };
    CHECK(draw(3) == draw(3));
    CHECK(draw(3) != draw(4));
}

TEST_CASE("NaN is never drawn, and a row that is no distribution gives its argmax") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(counts(Row({nan, 0, nan, 0}), {1, 0, 1, 1, 7}, 1000)[0] == 0);
    CHECK(counts(Row({nan, nan}), {1, 0, 1, 1, 7}, 10) == std::vector<int>{10, 0});
    CHECK(counts(Row({0, infinity}), {1, 2, 0.5, 1, 7}, 10) == std::vector<int>{0, 10});
}

TEST_CASE("a temperature next to 0 is greedy, also where a quotient overflows") {
    CHECK(counts(Row({1, 30, 2}), {1e-310, 0, 1, 1, 7}, 10) == std::vector<int>{0, 10, 0});
    CHECK(counts(Row({1, 30, 2}), {1e-310, 3, 0.9, 1, 7}, 10) == std::vector<int>{0, 10, 0});
    CHECK(counts(Row({-30, -1, -20}), {1e-310, 0, 1, 1, 7}, 10) == std::vector<int>{0, 10, 0});
    CHECK(counts(Row({1, 30, 2}), {1e-3, 0, 1, 1, 7}, 10) == std::vector<int>{0, 10, 0});
}
