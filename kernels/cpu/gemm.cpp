// Matrix product through oneDNN's sgemm, whose C interface is the same in 2.x and 3.x. C is cut into tiles by
// shape alone; each is one single-threaded call, so the bits do not depend on the number of threads.
#include "kernels/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>

static_assert(DNNL_VERSION_MAJOR == PENSTOCK_ONEDNN_MAJOR,
              "the oneDNN header is not the one that CMake found");

namespace penstock::kernels::cpu {
namespace {

struct Tiles {
  Index m = 0, n = 0;           // size of a tile, the last ones may be smaller
  Index rows = 0, columns = 0;  // how many
};

constexpr Index largest_tile = 512;
constexpr Index smallest_tile = 128;
constexpr Index enough_tiles = 8;     // for several threads to share the work evenly
constexpr double tile_flops = 8.0e6;  // below about 50 us a call's fixed cost shows

/// n cut into `parts` equal tiles, rounded up to a multiple of 16 lanes.
Index tile_size(Index n, Index parts) { return div_up(div_up(n, parts), 16) * 16; }

/// Cuts C into tiles of at most 512 x 512, then halves them until there are eight or they become small.
Tiles cut(const GemmShape& shape) {
  Index rows = div_up(shape.m, largest_tile), columns = div_up(shape.n, largest_tile);
  for (;;) {
    const Index m = tile_size(shape.m, rows), n = tile_size(shape.n, columns);
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(shape.k);
    const Index longer = std::max(m, n);
    if (rows * columns >= enough_tiles || flops < 2 * tile_flops || longer < 2 * smallest_tile)
      return {m, n, div_up(shape.m, m), div_up(shape.n, n)};
    (m >= n ? rows : columns) *= 2;
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

}  // namespace

void gemm(Stream& stream, const GemmShape& shape, In a, In b, In bias, Out c) {
  const Index m = shape.m, n = shape.n, k = shape.k;
  const bool transpose_a = shape.transpose_a, transpose_b = shape.transpose_b, accumulate = shape.accumulate;
  require<ShapeError>(m >= 0 && n >= 0 && k >= 0, "gemm: negative size in M {}, N {}, K {}", m, n, k);
  if (m == 0 || n == 0) return;
  const float* pa = a.as<float>();
  const float* pb = b.as<float>();
  float* pc = c.as<float>();
  const float* pbias = bias && !accumulate ? bias.as<float>() : nullptr;
  const Index lda = transpose_a ? m : k, ldb = transpose_b ? k : n;
  const Tiles tiles = cut(shape);
  ThreadPool::make_library_calls_single_threaded();  // the caller need not be the thread that made the pool
  stream.pool().parallel_for(tiles.rows * tiles.columns, [&](Index task) {
    const Index m0 = task % tiles.rows * tiles.m, n0 = task / tiles.rows * tiles.n;
    const Index tile_m = std::min(tiles.m, m - m0), tile_n = std::min(tiles.n, n - n0);
    float* tile = pc + m0 * n + n0;
    if (pbias || (k == 0 && !accumulate)) fill(tile, tile_m, tile_n, n, pbias ? pbias + n0 : nullptr);
    if (k == 0) return;
    const float beta = accumulate || pbias ? 1.0f : 0.0f;
    const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', tile_m, tile_n,
                                            k, 1.0f, pa + (transpose_a ? m0 : m0 * lda), lda,
                                            pb + (transpose_b ? n0 * ldb : n0), ldb, beta, tile, n);
    require<DeviceError>(status == dnnl_success, "gemm: oneDNN refused M {}, N {}, K {} with status {}",
                         tile_m, tile_n, k, static_cast<int>(status));
  });
}

}  // namespace penstock::kernels::cpu
