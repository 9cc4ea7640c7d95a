// The key/value cache: one pool, allocated once for the full context, bound directly to the graphs' past inputs.
//
// Layout, per layer: keys (n_kv_heads, head_dim, columns), values (n_kv_heads, columns, head_dim). Position p of the
// context is column p ("left-aligned"). An AR-N graph reads CL-N columns, so the row stride depends on the graph that
// runs next; `use_columns` moves the rows in place when it changes, and an empty cache needs no move. Columns that hold
// no token hold `padding` (the zero point, or 0), which reads as the real number 0.
//
// The last position has no column even in the AR-1 layout: no later token exists that could look at it.
#pragma once

#include "aligned_buffer.h"
#include "result.h"
#include "span.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace snapgate {

struct KvShape {
    std::uint32_t n_kv_heads = 0;
    std::uint32_t head_dim = 0;
    std::uint32_t context_length = 0;
    std::uint32_t max_columns = 0; // CL - 1, for the AR-1 graph
};

// What KvCache::fill writes: the real numbers -1, -7/8, ... 7/8, 1.
constexpr std::size_t kPatternSize = 17;
using KvPattern = std::array<std::uint32_t, kPatternSize>;

constexpr float pattern_value(std::size_t i) noexcept { return (static_cast<float>(i) - 8.0F) / 8.0F; }

// How the elements of one layer's keys or values are stored.
struct KvElement {
    std::size_t n_bytes = 0;
    std::uint32_t padding = 0; // raw
    KvPattern pattern{};       // raw
};

struct KvLayerElements {
    KvElement key;
    KvElement value;
};

// One layer's new keys (n_kv_heads, 1, head_dim, N) and values (n_kv_heads, 1, N, head_dim), as a graph wrote them.
struct KvOutputs {
    const std::byte* keys = nullptr;
    const std::byte* values = nullptr;
};

class KvCache {
  public:
    // The pool lies in memory of `source`, or of the heap where that is null.
    static Result<KvCache> create(const KvShape& shape, const std::vector<KvLayerElements>& layers,
                                  const RpcMemory* source = nullptr);

    // Empties the cache and lays it out for graphs that read `columns` columns.
    void reset(std::uint32_t columns) noexcept;

    // Puts `n_tokens` tokens that no text stands for into an empty cache: for steps at a depth. The key of position p,
    // head h, dimension d is pattern value (7 p + 3 h + 5 d) mod 17, the value (5 p + 7 h + 3 d + 1) mod 17, in every
    // layer: small numbers of both signs, not all alike, so that the hardware has as much to switch as with a text.
    void fill(std::uint32_t n_tokens) noexcept;

    // Moves the rows to the stride of `columns`. Every token held must fit; true when anything was moved.
    bool use_columns(std::uint32_t columns) noexcept;

    // True when `n_tokens` more would not fit the present layout although the widest would hold them.
    bool needs_more_columns(std::uint32_t n_tokens) const noexcept;

    // Adds the first `n_tokens` of the `n_graph_tokens` that each layer's outputs hold.
    void append(Span<const KvOutputs> layers, std::uint32_t n_graph_tokens, std::uint32_t n_tokens) noexcept;

    std::byte* keys(std::size_t layer) const noexcept { return pool_.data() + layers_[layer].key_offset; }

    std::byte* values(std::size_t layer) const noexcept { return pool_.data() + layers_[layer].value_offset; }

    // The rows of a layer as they lie in memory: keys (n_kv_heads, head_dim, columns()), values (n_kv_heads,
    // columns(), head_dim).
    Span<const std::byte> key_rows(std::size_t layer) const noexcept;
    Span<const std::byte> value_rows(std::size_t layer) const noexcept;

    std::size_t n_layers() const noexcept { return layers_.size(); }

    std::uint32_t length() const noexcept { return length_; } // tokens seen

    std::uint32_t columns() const noexcept { return columns_; }

    std::uint32_t max_columns() const noexcept { return shape_.max_columns; }

    const AlignedBuffer& pool() const noexcept { return pool_; }

    std::uint64_t pool_bytes() const noexcept { return pool_.size(); }

  private:
    struct Layer {
        KvLayerElements elements;
        std::size_t key_offset = 0;
        std::size_t value_offset = 0;
    };

    KvCache(const KvShape& shape, std::vector<Layer> layers, AlignedBuffer pool)
        : shape_(shape), layers_(std::move(layers)), pool_(std::move(pool)) {}

    std::uint32_t stored() const noexcept; // columns that hold a token

    KvShape shape_;
    std::vector<Layer> layers_;
    AlignedBuffer pool_;
    std::uint32_t columns_ = 0;
    std::uint32_t length_ = 0;
};

} // namespace snapgate
