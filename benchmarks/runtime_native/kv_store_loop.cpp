// The stores of one new token's keys and values into a cache of the runner's layout, and nothing else: what no program
// with this layout can do without. Prints one line of nanoseconds a step.
#include "aligned_buffer.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <tuple>
#include <vector>

namespace {

std::int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

template <typename Element>
void store(std::byte* pool, const std::byte* outputs, std::size_t layers, std::size_t heads, std::size_t dim,
           std::size_t columns, std::size_t layer_bytes, std::size_t output_bytes, std::size_t position) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
        auto* keys = reinterpret_cast<Element*>(pool + 2 * layer * layer_bytes);
        auto* values = reinterpret_cast<Element*>(pool + (2 * layer + 1) * layer_bytes);
        const auto* new_keys = reinterpret_cast<const Element*>(outputs + 2 * layer * output_bytes);
        const auto* new_values = reinterpret_cast<const Element*>(outputs + (2 * layer + 1) * output_bytes);
        for (std::size_t row = 0; row < heads * dim; ++row) {
            keys[row * columns + position] = new_keys[row];
        }
        for (std::size_t head = 0; head < heads; ++head) {
            std::memcpy(values + (head * columns + position) * dim, new_values + head * dim, dim * sizeof(Element));
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 8) {
        std::fprintf(stderr, "usage: kv-store-loop LAYERS HEADS DIM CONTEXT ELEMENT_BYTES START STEPS\n");
        return 2;
    }
    std::size_t n[7];
    for (int i = 0; i < 7; ++i) {
        n[i] = std::strtoul(argv[i + 1], nullptr, 10);
    }
    const auto [layers, heads, dim, context, size, start, steps] = std::tuple(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    const auto padded = [](std::size_t bytes) { return (bytes + 127) / 128 * 128; };
    const std::size_t layer_bytes = padded(heads * dim * (context - 1) * size);
    const std::size_t output_bytes = padded(heads * dim * size);
    auto pool = snapgate::AlignedBuffer::allocate(2 * layers * layer_bytes, "the cache");
    auto outputs = snapgate::AlignedBuffer::allocate(2 * layers * output_bytes, "the outputs");
    if (!pool || !outputs) {
        return 1;
    }
    std::memset(pool->data(), 1, pool->size());
    std::memset(outputs->data(), 2, outputs->size());
    std::vector<std::int64_t> taken(steps);
    for (std::size_t i = 0; i < steps; ++i) {
        const std::int64_t began = now();
        (size == 1 ? store<std::uint8_t> : store<std::uint16_t>)(pool->data(), outputs->data(), layers, heads, dim,
                                                                 context - 1, layer_bytes, output_bytes, start + i);
        taken[i] = now() - began;
    }
    for (const std::int64_t ns : taken) {
        std::printf("%lld\n", static_cast<long long>(ns));
    }
    return 0;
}
