// Shape: construction with checks, and its text form.
#include "core/shape.h"

#include <fmt/ranges.h>

namespace penstock {

Shape::Shape(std::span<const Index> sizes) {
  require<ShapeError>(sizes.size() <= max_rank, "a tensor has at most {} dimensions, not {}", max_rank,
                      sizes.size());
  rank_ = static_cast<int>(sizes.size());
  bool empty = false;  // then the order of the other sizes, however large, does not matter
  for (int i = 0; i < rank_; ++i) {
    const Index size = sizes[static_cast<std::size_t>(i)];
    require<ShapeError>(size >= 0, "dimension {} has the negative size {}", i, size);
    sizes_[static_cast<std::size_t>(i)] = size;
    empty = empty || size == 0;
  }
  if (empty) {
    numel_ = 0;
    return;
  }
  for (const Index size : this->sizes())
    require<ShapeError>(!__builtin_mul_overflow(numel_, size, &numel_), "{} elements overflow 64 bits",
                        str());
}

Index Shape::dim(int dimension) const {
  const int d = dimension < 0 ? dimension + rank_ : dimension;
  require<ShapeError>(d >= 0 && d < rank_, "dimension {} of a tensor of shape {}", dimension, str());
  return sizes_[static_cast<std::size_t>(d)];
}

Shape Shape::with(int dimension, Index size) const {
  const int d = dimension < 0 ? dimension + rank_ : dimension;
  require<ShapeError>(d >= 0 && d < rank_, "dimension {} of a tensor of shape {}", dimension, str());
  std::array<Index, max_rank> sizes = sizes_;
  sizes[static_cast<std::size_t>(d)] = size;
  return Shape(std::span<const Index>(sizes.data(), static_cast<std::size_t>(rank_)));
}

Shape Shape::without_last() const {
  require<ShapeError>(rank_ > 0, "a tensor without dimensions has no last one");
  return Shape(sizes().first(static_cast<std::size_t>(rank_ - 1)));
}

std::string Shape::str() const { return fmt::format("({})", fmt::join(sizes(), ", ")); }

}  // namespace penstock
