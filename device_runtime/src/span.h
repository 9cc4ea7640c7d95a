// Borrowed contiguous memory: a pointer and a length, owned by somebody else.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

namespace snapgate {

template <typename T>
class Span {
  public:
    constexpr Span() noexcept = default;

    constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

    Span(const std::vector<std::remove_const_t<T>>& items) noexcept : data_(items.data()), size_(items.size()) {}

    constexpr T* data() const noexcept { return data_; }

    constexpr std::size_t size() const noexcept { return size_; }

    constexpr bool empty() const noexcept { return size_ == 0; }

    constexpr T& operator[](std::size_t index) const noexcept { return data_[index]; }

    constexpr T* begin() const noexcept { return data_; }

    constexpr T* end() const noexcept { return data_ + size_; }

    // The caller guarantees offset + count <= size().
    constexpr Span subspan(std::size_t offset, std::size_t count) const noexcept { return Span(data_ + offset, count); }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace snapgate
