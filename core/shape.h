// Extents of a tensor: up to eight signed 64-bit sizes, their product checked.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>

#include "core/checked.h"

namespace penstock {

class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  /// Throws ShapeError for a negative size, more than max_rank sizes, or a product beyond 64 bits.
  Shape(std::initializer_list<Index> sizes) : Shape(std::span<const Index>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const Index> sizes);

  int rank() const { return rank_; }
  Index operator[](int dimension) const { return sizes_[static_cast<std::size_t>(dimension)]; }
  /// Size of a dimension; negative ones count from the back. Throws ShapeError when out of range.
  Index dim(int dimension) const;
  Index numel() const { return numel_; }
  std::span<const Index> sizes() const { return {sizes_.data(), static_cast<std::size_t>(rank_)}; }
  /// The same with one size replaced.
  Shape with(int dimension, Index size) const;
  /// Without the last dimension: (B, T, C) gives (B, T).
  Shape without_last() const;
  /// "(2, 3, 4)"
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.sizes_ == b.sizes_;
  }

 private:
  std::array<Index, max_rank> sizes_{};  // unused places stay 0
  int rank_ = 0;
  Index numel_ = 1;
};

}  // namespace penstock
