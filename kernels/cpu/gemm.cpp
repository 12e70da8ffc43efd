// Matrix product through oneDNN's sgemm, whose C interface is the same in 2.x and 3.x. C is cut into tiles by
// shape alone; each is one single-threaded call, so the bits do not depend on the number of threads.
#include "kernels/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>

static_assert(DNNL_VERSION_MAJOR == PENSTOCK_ONEDNN_MAJOR,
              "the oneDNN header is not the one that CMake found");
// With these two a thread can make its own calls single-threaded; other runtimes share a tile among threads.
static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP ||
                  DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "Penstock needs a oneDNN that is built with OpenMP or without threads");

namespace penstock::kernels::cpu {
namespace {

struct Tiles {
  Index m = 0, n = 0;           // size of a tile, the last ones may be smaller
  Index rows = 0, columns = 0;  // how many
};

constexpr Index largest_rows = 512, largest_columns = 768;
constexpr Index smallest_tile = 128;
constexpr Index enough_tiles = 8;     // for several threads to share the work evenly
constexpr double tile_flops = 8.0e6;  // below about 50 us a call's fixed cost shows

/// n cut into `parts` equal tiles, rounded up to a multiple of 16, a cache line.
Index tile_size(Index n, Index parts) { return div_up(div_up(n, parts), 16) * 16; }

/// Cuts C into tiles of at most 512 x 768, then halves them until there are eight or they become small.
/// Measured: oneDNN reads a transposed A (the gradient of a weight) best for wide tiles, so there the rows
/// are halved first.
Tiles cut(const GemmShape& shape) {
  Index rows = div_up(shape.m, largest_rows), columns = div_up(shape.n, largest_columns);
  for (;;) {
    const Index m = tile_size(shape.m, rows), n = tile_size(shape.n, columns);
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(shape.k);
    if (rows * columns >= enough_tiles || flops < 2 * tile_flops || std::max(m, n) < 2 * smallest_tile)
      return {m, n, div_up(shape.m, m), div_up(shape.n, n)};
    (m >= n || (shape.transpose_a && m >= 2 * smallest_tile) ? rows : columns) *= 2;
  }
}

/// Starts a tile with the bias, or zeros, where the library has nothing to add to it.
void fill(float* c, Index m, Index n, Index stride, const float* bias) {
  for (Index i = 0; i < m; ++i) {
    float* row = c + i * stride;
    if (bias)
      std::memcpy(row, bias, static_cast<std::size_t>(n) * sizeof(float));
    else
      std::memset(row, 0, static_cast<std::size_t>(n) * sizeof(float));
  }
}

void check_sizes(const GemmShape& shape) {
  require<ShapeError>(shape.m >= 0 && shape.n >= 0 && shape.k >= 0, "gemm: negative size in M {}, N {}, K {}",
                      shape.m, shape.n, shape.k);
}

/// One tile of C.
void multiply_tile(const GemmShape& shape, const Tiles& tiles, Index task, const float* a, const float* b,
                   const float* bias, float* c) {
  const Index m = shape.m, n = shape.n, k = shape.k;
  const Index lda = shape.transpose_a ? m : k, ldb = shape.transpose_b ? k : n;
  const Index m0 = task % tiles.rows * tiles.m, n0 = task / tiles.rows * tiles.n;
  const Index tile_m = std::min(tiles.m, m - m0), tile_n = std::min(tiles.n, n - n0);
  float* tile = c + m0 * n + n0;
  if (bias || (k == 0 && !shape.accumulate)) fill(tile, tile_m, tile_n, n, bias ? bias + n0 : nullptr);
  if (k == 0) return;
  const float beta = shape.accumulate || bias ? 1.0f : 0.0f;
  const dnnl_status_t status = dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N',
                                          tile_m, tile_n, k, 1.0f, a + (shape.transpose_a ? m0 : m0 * lda),
                                          lda, b + (shape.transpose_b ? n0 * ldb : n0), ldb, beta, tile, n);
  require<DeviceError>(status == dnnl_success, "gemm: oneDNN refused M {}, N {}, K {} with status {}", tile_m,
                       tile_n, k, static_cast<int>(status));
}

}  // namespace

void gemm(Stream& stream, const GemmShape& shape, In a, In b, In bias, Out c) {
  check_sizes(shape);
  if (shape.m == 0 || shape.n == 0) return;
  const float* pa = a.as<float>();
  const float* pb = b.as<float>();
  float* pc = c.as<float>();
  const float* pbias = bias && !shape.accumulate ? bias.as<float>() : nullptr;
  const Tiles tiles = cut(shape);
  ThreadPool::make_library_calls_single_threaded();  // the caller need not be the thread that made the pool
  stream.pool().parallel_for(tiles.rows * tiles.columns,
                             [&](Index task) { multiply_tile(shape, tiles, task, pa, pb, pbias, pc); });
}

void gemm_batched(Stream& stream, const GemmShape& shape, const GemmBatch& batch, In a, In b, Out c) {
  check_sizes(shape);
  Index matrices = 1;
  for (int d = 0; d < batch.rank; ++d) matrices *= batch.sizes[d];
  if (shape.m == 0 || shape.n == 0 || matrices == 0) return;
  const float* pa = a.as<float>();
  const float* pb = b.as<float>();
  float* pc = c.as<float>();
  const Tiles tiles = cut(shape);
  const Index tasks = tiles.rows * tiles.columns;
  ThreadPool::make_library_calls_single_threaded();
  stream.pool().parallel_for(matrices * tasks, [&](Index task) {
    const Index matrix = task / tasks;
    Index rest = matrix, to_a = 0, to_b = 0;
    for (int d = batch.rank - 1; d >= 0; --d) {
      const Index at = rest % batch.sizes[d];
      rest /= batch.sizes[d];
      to_a += at * batch.stride_a[d];
      to_b += at * batch.stride_b[d];
    }
    multiply_tile(shape, tiles, task % tasks, pa + to_a, pb + to_b, nullptr, pc + matrix * shape.m * shape.n);
  });
}

}  // namespace penstock::kernels::cpu
