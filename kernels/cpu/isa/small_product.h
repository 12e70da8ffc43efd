// Product of small dense blocks that lie in a core's own caches, for attention. C (m, n) += or = A (m, k) B
// (k, n); rows of B and C are contiguous, A has any two strides, so that a transpose costs nothing. For each
// element k ascends in one chain, whatever the block's size.
#pragma once

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

/// A strided operand: element (i, j) at data[i * row + j * column].
struct Strided {
  const float* data;
  Index row, column;
};

// The inner block: `block_rows` rows of `block_vectors` vectors accumulate in registers.
#if defined(__AVX512F__)
inline constexpr Index block_rows = 6, block_vectors = 4;  // 24 of 32
#elif defined(__AVX2__)
inline constexpr Index block_rows = 6, block_vectors = 2;  // 12 of 16
#else
inline constexpr Index block_rows = 4, block_vectors = 2;  // 8 of 16
#endif

template <Index Rows, Index Vectors>
PENSTOCK_INLINE void product_block(Index k, Strided a, const float* b, Index b_stride, float* c,
                                   Index c_stride, bool add, Index last) {
  // `last` is the number of columns in the last vector, all of it unless Vectors is 1.
  Floats sums[Rows][Vectors] = {};
  for (Index p = 0; p < k; ++p) {
    Floats row[Vectors];
    for (Index v = 0; v < Vectors; ++v)
      row[v] = load(b + p * b_stride + v * lanes, v + 1 == Vectors ? last : lanes);
    for (Index r = 0; r < Rows; ++r) {
      const Floats factor = splat(a.data[r * a.row + p * a.column]);
      for (Index v = 0; v < Vectors; ++v) sums[r][v] = multiply_add(factor, row[v], sums[r][v]);
    }
  }
  for (Index r = 0; r < Rows; ++r)
    for (Index v = 0; v < Vectors; ++v) {
      float* to = c + r * c_stride + v * lanes;
      const Index count = v + 1 == Vectors ? last : lanes;
      store(to, add ? load(to, count) + sums[r][v] : sums[r][v], count);
    }
}

/// All rows of a panel of `Vectors` vectors.
template <Index Vectors>
PENSTOCK_INLINE void product_panel(Index m, Index k, Strided a, const float* b, Index b_stride, float* c,
                                   Index c_stride, bool add, Index last) {
  Index i = 0;
  for (; i + block_rows <= m; i += block_rows)
    product_block<block_rows, Vectors>(k, {a.data + i * a.row, a.row, a.column}, b, b_stride,
                                       c + i * c_stride, c_stride, add, last);
  for (; i < m; ++i)
    product_block<1, Vectors>(k, {a.data + i * a.row, a.row, a.column}, b, b_stride, c + i * c_stride,
                              c_stride, add, last);
}

inline void small_product(Index m, Index n, Index k, Strided a, const float* b, Index b_stride, float* c,
                          Index c_stride, bool add) {
  Index j = 0;
  for (; j + block_vectors * lanes <= n; j += block_vectors * lanes)
    product_panel<block_vectors>(m, k, a, b + j, b_stride, c + j, c_stride, add, lanes);
  if constexpr (block_vectors > 1)
    for (; j + lanes <= n; j += lanes)
      product_panel<1>(m, k, a, b + j, b_stride, c + j, c_stride, add, lanes);
  if (j < n) product_panel<1>(m, k, a, b + j, b_stride, c + j, c_stride, add, n - j);
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
