#include "kv_cache.h"

#include "encoding.h"

#include <algorithm>
#include <cstring>

namespace snapgate {
namespace {

// Rows of `used` items, at a stride of `from` items, are moved in place to a stride of `to` and padded there. A wider
// stride is walked from the last row, so that no row is overwritten before it has moved.
void restride(std::byte* base, std::size_t n_rows, std::size_t used, std::size_t from, std::size_t to,
              std::size_t elements_per_item, const KvElement& element) noexcept {
    const std::size_t item_bytes = elements_per_item * element.n_bytes;
    for (std::size_t i = 0; i < n_rows; ++i) {
        const std::size_t row = to > from ? n_rows - 1 - i : i;
        std::byte* target = base + row * to * item_bytes;
        std::memmove(target, base + row * from * item_bytes, used * item_bytes);
        fill_raw(target + used * item_bytes, (to - used) * elements_per_item, element.n_bytes, element.padding);
    }
}

// One token's keys: an element to each row. A plain store: a call of memcpy for each takes longer than the store.
template <typename Element>
void store_column(std::byte* keys, const std::byte* new_keys, std::size_t n_rows, std::size_t columns,
                  std::size_t column) noexcept {
    for (std::size_t row = 0; row < n_rows; ++row) {
        std::memcpy(keys + (row * columns + column) * sizeof(Element), new_keys + row * sizeof(Element),
                    sizeof(Element));
    }
}

} // namespace

Result<KvCache> KvCache::create(const KvShape& shape, const std::vector<KvLayerElements>& layers,
                                const RpcMemory* source) {
    // find_tensors has kept every tensor of the job below 4 GiB, and there are few layers: 64 bits are enough.
    const std::uint64_t n_elements = static_cast<std::uint64_t>(shape.n_kv_heads) * shape.head_dim * shape.max_columns;
    std::vector<Layer> placed;
    placed.reserve(layers.size());
    std::uint64_t end = 0;
    for (const KvLayerElements& elements : layers) {
        Layer layer{elements, 0, 0};
        layer.key_offset = end;
        end += round_up_to_alignment(n_elements * elements.key.n_bytes);
        layer.value_offset = end;
        end += round_up_to_alignment(n_elements * elements.value.n_bytes);
        placed.push_back(layer);
    }
    auto pool = AlignedBuffer::allocate(end, "KV pool", source);
    if (!pool) {
        return std::move(pool).fault();
    }
    KvCache cache(shape, std::move(placed), *std::move(pool));
    cache.reset(shape.max_columns);
    return cache;
}

std::uint32_t KvCache::stored() const noexcept { return std::min(length_, shape_.max_columns); }

void KvCache::reset(std::uint32_t columns) noexcept {
    const std::size_t n_elements = static_cast<std::size_t>(shape_.n_kv_heads) * shape_.head_dim * shape_.max_columns;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const KvLayerElements& elements = layers_[i].elements;
        fill_raw(keys(i), n_elements, elements.key.n_bytes, elements.key.padding);
        fill_raw(values(i), n_elements, elements.value.n_bytes, elements.value.padding);
    }
    columns_ = columns;
    length_ = 0;
}

void KvCache::fill(std::uint32_t n_tokens) noexcept {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const KvElement& key = layers_[i].elements.key;
        const KvElement& value = layers_[i].elements.value;
        for (std::size_t head = 0; head < shape_.n_kv_heads; ++head) {
            for (std::size_t dim = 0; dim < shape_.head_dim; ++dim) {
                for (std::size_t p = 0; p < std::min(n_tokens, columns_); ++p) {
                    store_raw(keys(i), (head * shape_.head_dim + dim) * columns_ + p, key.n_bytes,
                              key.pattern[(7 * p + 3 * head + 5 * dim) % kPatternSize]);
                    store_raw(values(i), (head * columns_ + p) * shape_.head_dim + dim, value.n_bytes,
                              value.pattern[(5 * p + 7 * head + 3 * dim + 1) % kPatternSize]);
                }
            }
        }
    }
    length_ = n_tokens;
}

bool KvCache::use_columns(std::uint32_t columns) noexcept {
    if (columns == columns_) {
        return false;
    }
    if (length_ == 0) { // nothing but padding, which looks the same at every stride
        columns_ = columns;
        return false;
    }
    const std::size_t n_heads = shape_.n_kv_heads;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const KvLayerElements& elements = layers_[i].elements;
        restride(keys(i), n_heads * shape_.head_dim, stored(), columns_, columns, 1, elements.key);
        restride(values(i), n_heads, stored(), columns_, columns, shape_.head_dim, elements.value);
    }
    columns_ = columns;
    return true;
}

Span<const std::byte> KvCache::key_rows(std::size_t layer) const noexcept {
    const std::size_t n_elements = static_cast<std::size_t>(shape_.n_kv_heads) * shape_.head_dim * columns_;
    return {keys(layer), n_elements * layers_[layer].elements.key.n_bytes};
}

Span<const std::byte> KvCache::value_rows(std::size_t layer) const noexcept {
    const std::size_t n_elements = static_cast<std::size_t>(shape_.n_kv_heads) * shape_.head_dim * columns_;
    return {values(layer), n_elements * layers_[layer].elements.value.n_bytes};
}

bool KvCache::needs_more_columns(std::uint32_t n_tokens) const noexcept {
    return std::min(length_ + n_tokens, shape_.max_columns) > columns_;
}

void KvCache::append(Span<const KvOutputs> layers, std::uint32_t n_graph_tokens, std::uint32_t n_tokens) noexcept {
    const std::size_t dim = shape_.head_dim;
    const std::size_t n_stored = std::min(n_tokens, columns_ - stored());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const std::size_t key_bytes = layers_[i].elements.key.n_bytes;
        const std::size_t n_rows = shape_.n_kv_heads * dim;
        if (n_graph_tokens == 1 && n_stored == 1 && key_bytes <= 2) {
            (key_bytes == 1 ? store_column<std::uint8_t> : store_column<std::uint16_t>)(keys(i), layers[i].keys, n_rows,
                                                                                        columns_, length_);
        } else {
            for (std::size_t row = 0; row < n_rows; ++row) {
                std::memcpy(keys(i) + (row * columns_ + length_) * key_bytes,
                            layers[i].keys + row * n_graph_tokens * key_bytes, n_stored * key_bytes);
            }
        }
        const std::size_t value_bytes = layers_[i].elements.value.n_bytes;
        for (std::size_t head = 0; head < shape_.n_kv_heads; ++head) {
            std::memcpy(values(i) + (head * columns_ + length_) * dim * value_bytes,
                        layers[i].values + head * n_graph_tokens * dim * value_bytes, n_stored * dim * value_bytes);
        }
    }
    length_ += n_tokens;
}

} // namespace snapgate
