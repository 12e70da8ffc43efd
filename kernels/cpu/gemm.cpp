// Matrix product through oneDNN's sgemm, whose C interface is the same in 2.x and 3.x. C is cut into tiles by
// shape alone; each is made by one thread, so the bits do not depend on their number.
//
// bf16 operands are widened a panel at a time into the thread's own workspace, where a tile's product is made
// in fp32: on processors without bf16 instructions this costs a few per cent of the fp32 product, where the
// library's own bf16 path takes many times as long.
#include "kernels/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>

#include "kernels/panel.h"

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

constexpr Index widened_depth = 512;  // of K: a panel stays in a core's own cache

void check_sizes(const GemmShape& shape) {
  require<ShapeError>(shape.m >= 0 && shape.n >= 0 && shape.k >= 0, "gemm: negative size in M {}, N {}, K {}",
                      shape.m, shape.n, shape.k);
}

/// C (m, n) = alpha A B + beta C for one tile, on one thread.
void call_library(const GemmShape& shape, Index m, Index n, Index k, const float* a, Index lda,
                  const float* b, Index ldb, float beta, float* c, Index ldc) {
  const dnnl_status_t status = dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', m, n,
                                          k, 1.0f, a, lda, b, ldb, beta, c, ldc);
  require<DeviceError>(status == dnnl_success, "gemm: oneDNN refused M {}, N {}, K {} with status {}", m, n,
                       k, static_cast<int>(status));
}

/// Floats of a thread's workspace: a panel of A, one of B, and a tile of C where C is not fp32.
struct Workspace {
  Index a = 0, b = 0, c = 0;

  Workspace(const GemmShape& shape, const Tiles& tiles, DType operands, DType result) {
    if (operands == DType::f32) return;
    const Index depth = std::min(shape.k, widened_depth);
    a = tiles.m * depth;
    b = tiles.n * depth;
    if (result != DType::f32) c = tiles.m * tiles.n;
  }
  Index total() const { return a + b + c; }
};

/// One product, from matrices that begin at these addresses.
class Product {
 public:
  Product(Stream& stream, const GemmShape& shape, In a, In b, In bias, Out workspace, Out c)
      : stream_(stream),
        shape_(shape),
        tiles_(cut(shape)),
        workspace_(shape, tiles_, a.dtype, c.dtype),
        memory_(workspace_.total() > 0 ? workspace.as<float>() : nullptr),
        narrow_(a.dtype == DType::bf16),
        a_(a.data),
        b_(b.data),
        bias_(bias && !shape.accumulate ? bias.data : nullptr),
        c_(c.data),
        narrow_result_(c.dtype == DType::bf16) {
    require<ValueError>(a.dtype == DType::f32 || narrow_, "gemm: of {}, not fp32 or bf16", name_of(a.dtype));
    require<ValueError>(b.dtype == a.dtype, "gemm: {} times {}", name_of(a.dtype), name_of(b.dtype));
    require<ValueError>(!bias_ || bias.dtype == a.dtype, "gemm: a bias of {} for {}", name_of(bias.dtype),
                        name_of(a.dtype));
    require<ValueError>(c.dtype == DType::f32 || (narrow_result_ && narrow_ && !shape.accumulate),
                        "gemm: a result of {} for {}{}", name_of(c.dtype), name_of(a.dtype),
                        shape.accumulate ? ", accumulated" : "");
  }

  Index tasks() const { return tiles_.rows * tiles_.columns; }

  /// One tile of the product of matrices that lie so many elements further on.
  void run(Index task, Index to_a, Index to_b, Index to_c) const {
    const Index m0 = task % tiles_.rows * tiles_.m, n0 = task / tiles_.rows * tiles_.n;
    const Index m = std::min(tiles_.m, shape_.m - m0), n = std::min(tiles_.n, shape_.n - n0);
    const Index c_place = to_c + m0 * shape_.n + n0;
    if (!narrow_) return multiply(m0, n0, m, n, to_a, to_b, static_cast<float*>(c_) + c_place, shape_.n);
    float* mine = memory_ + ThreadPool::worker() * workspace_.total();
    if (!narrow_result_)
      return multiply_narrow(m0, n0, m, n, to_a, to_b, mine, static_cast<float*>(c_) + c_place, shape_.n);
    float* tile = mine + workspace_.a + workspace_.b;
    multiply_narrow(m0, n0, m, n, to_a, to_b, mine, tile, n);
    round_panel(stream_, m, n, tile, static_cast<bf16*>(c_) + c_place, shape_.n);
  }

 private:
  /// Starts a tile with the bias, or zeros, where the library has nothing to add to it. True: it adds.
  bool begin(Index n0, Index m, Index n, float* c, Index ldc) const {
    if (shape_.accumulate) return true;
    if (!bias_ && shape_.k > 0) return false;
    for (Index i = 0; i < m; ++i) {
      float* row = c + i * ldc;
      if (!bias_)
        std::fill_n(row, n, 0.0f);
      else if (i > 0)
        std::copy_n(c, n, row);
      else if (narrow_)
        widen_panel(stream_, 1, n, static_cast<const bf16*>(bias_) + n0, n, row);
      else
        std::copy_n(static_cast<const float*>(bias_) + n0, n, row);
    }
    return true;
  }

  void multiply(Index m0, Index n0, Index m, Index n, Index to_a, Index to_b, float* c, Index ldc) const {
    const bool add = begin(n0, m, n, c, ldc);
    if (shape_.k == 0) return;
    const Index lda = shape_.transpose_a ? shape_.m : shape_.k,
                ldb = shape_.transpose_b ? shape_.k : shape_.n;
    call_library(shape_, m, n, shape_.k,
                 static_cast<const float*>(a_) + to_a + (shape_.transpose_a ? m0 : m0 * lda), lda,
                 static_cast<const float*>(b_) + to_b + (shape_.transpose_b ? n0 * ldb : n0), ldb,
                 add ? 1.0f : 0.0f, c, ldc);
  }

  /// The same from bf16: panels of A and B are widened, some of K at a time.
  void multiply_narrow(Index m0, Index n0, Index m, Index n, Index to_a, Index to_b, float* mine, float* c,
                       Index ldc) const {
    bool add = begin(n0, m, n, c, ldc);
    float *panel_a = mine, *panel_b = mine + workspace_.a;
    const bf16* a = static_cast<const bf16*>(a_) + to_a;
    const bf16* b = static_cast<const bf16*>(b_) + to_b;
    for (Index k0 = 0; k0 < shape_.k; k0 += widened_depth, add = true) {
      const Index k = std::min(widened_depth, shape_.k - k0);
      if (shape_.transpose_a)
        widen_panel(stream_, k, m, a + k0 * shape_.m + m0, shape_.m, panel_a);
      else
        widen_panel(stream_, m, k, a + m0 * shape_.k + k0, shape_.k, panel_a);
      if (shape_.transpose_b)
        widen_panel(stream_, n, k, b + n0 * shape_.k + k0, shape_.k, panel_b);
      else
        widen_panel(stream_, k, n, b + k0 * shape_.n + n0, shape_.n, panel_b);
      call_library(shape_, m, n, k, panel_a, shape_.transpose_a ? m : k, panel_b, shape_.transpose_b ? k : n,
                   add ? 1.0f : 0.0f, c, ldc);
    }
  }

  Stream& stream_;
  const GemmShape& shape_;
  Tiles tiles_;
  Workspace workspace_;
  float* memory_;
  bool narrow_;
  const void *a_, *b_, *bias_;
  void* c_;
  bool narrow_result_;
};

}  // namespace

void gemm(Stream& stream, const GemmShape& shape, In a, In b, In bias, Out workspace, Out c) {
  check_sizes(shape);
  if (shape.m == 0 || shape.n == 0) return;
  const Product product(stream, shape, a, b, bias, workspace, c);
  ThreadPool::make_library_calls_single_threaded();  // the caller need not be the thread that made the pool
  stream.pool().parallel_for(product.tasks(), [&](Index task) { product.run(task, 0, 0, 0); });
}

void gemm_batched(Stream& stream, const GemmShape& shape, const GemmBatch& batch, In a, In b, Out workspace,
                  Out c) {
  check_sizes(shape);
  Index matrices = 1;
  for (int d = 0; d < batch.rank; ++d) matrices *= batch.sizes[d];
  if (shape.m == 0 || shape.n == 0 || matrices == 0) return;
  const Product product(stream, shape, a, b, {}, workspace, c);
  const Index tasks = product.tasks();
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
    product.run(task % tasks, to_a, to_b, matrix * shape.m * shape.n);
  });
}

}  // namespace penstock::kernels::cpu

namespace penstock::kernels {

Index gemm_workspace(const GemmShape& shape, DType operands, DType result, int threads) {
  if (operands == DType::f32 || shape.m == 0 || shape.n == 0) return 0;
  return cpu::Workspace(shape, cpu::cut(shape), operands, result).total() * threads;
}

}  // namespace penstock::kernels
