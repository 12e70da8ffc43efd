// Blockwise attention with an online softmax (Dao et al., "FlashAttention", 2022, algorithms 1 and 4; Dao,
// "FlashAttention-2", 2023, section 3.1), see kernels/attention.h.
//
// A task holds a block of 64 queries and visits blocks of 64 keys. Scores stand transposed, one row a key and
// one column a query: queries fill the vectors, so the softmax needs no sum across lanes, and only the block
// of queries is transposed, once, not every block of keys.
#include "kernels/attention.h"

#include <cmath>

#include "kernels/cpu/isa/rows.h"
#include "kernels/cpu/isa/small_product.h"
#include "kernels/cpu/isa/transpose.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

constexpr Index block = 64;  // queries, and keys, of a block
constexpr Index vectors = block / lanes;
constexpr Index largest_head = 256;

void check(const AttentionShape& s, bool segments) {
  if (s.head_size < 1 || s.head_size > largest_head)
    throw_attention("head size outside 1..256", s.head_size, largest_head);
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    throw_attention("heads are not a multiple of key/value heads", s.heads, s.kv_heads);
  if (segments && (s.query_offset < 0 || s.query_offset + s.queries > s.keys))
    throw_attention("with segment ids every query stands among the keys; last query and keys are",
                    s.query_offset + s.queries, s.keys);
}

/// The queries of one task and which keys they see.
struct QueryBlock {
  const AttentionShape* shape;
  const std::int32_t* segments;  // of this batch row, or null
  Index first, count;            // queries

  Index first_position() const { return shape->query_offset + first; }
  /// Keys that some query of the block may see: begin (a multiple of `block`) .. end.
  Index end_key() const {
    if (!shape->causal) return shape->keys;
    const Index end = first_position() + count;
    return end < shape->keys ? (end > 0 ? end : 0) : shape->keys;
  }
  Index begin_key() const {
    if (shape->window == 0) return 0;
    const Index begin = first_position() - shape->window + 1;
    return begin > 0 ? begin / block * block : 0;
  }
  /// True where every query sees all keys of key..key+n-1.
  bool sees_all(Index key, Index n) const {
    if (segments || count < block) return false;
    if (shape->causal && key + n - 1 > first_position()) return false;
    return shape->window == 0 || key > first_position() + count - 1 - shape->window;
  }
};

/// Puts -infinity where a query does not see a key. scores (n keys, 64 queries)
void mask_scores(const QueryBlock& q, Index key, Index n, float* scores) {
  const AttentionShape& s = *q.shape;
  for (Index j = 0; j < n; ++j) {
    // Queries begin..end-1 of the block see the key, as far as order and window go.
    float* row = scores + j * block;
    const Index distance = key + j - q.first_position();
    Index begin = 0, end = q.count;
    if (s.causal && distance > begin) begin = distance < block ? distance : block;
    if (s.window > 0 && distance + s.window < end) end = distance + s.window;
    for (Index i = 0; i < begin; ++i) row[i] = -infinity;
    for (Index i = end > begin ? end : begin; i < block; ++i) row[i] = -infinity;
    if (q.segments)
      for (Index i = begin; i < end; ++i)
        if (q.segments[key + j] != q.segments[q.first_position() + i]) row[i] = -infinity;
  }
}

/// to (head, 64) = the rows of `from` (count, head) as columns, times `factor`; columns beyond count are 0.
template <class T>
void transpose_block(const T* from, Index stride, Index count, Index head, float factor, float* to) {
  const Index whole = head / lanes * lanes;
  for (Index i = 0; i < block; i += lanes)
    for (Index d = 0; d < whole; d += lanes) {
      Floats square[lanes];
      for (Index r = 0; r < lanes; ++r)
        square[r] = i + r < count ? load(from + (i + r) * stride + d) * splat(factor) : Floats{};
      transpose(square);
      for (Index r = 0; r < lanes; ++r) store(to + (d + r) * block + i, square[r]);
    }
  for (Index i = 0; i < block; ++i)
    for (Index d = whole; d < head; ++d)
      to[d * block + i] = i < count ? widened(from[i * stride + d]) * factor : 0.0f;
}

/// Rows of a block as fp32: where they lie, or a copy in `buffer` (64, head).
struct Rows {
  const float* data;
  Index stride;
};
PENSTOCK_INLINE Rows rows_of(const float* from, Index stride, Index, Index, float*) { return {from, stride}; }
PENSTOCK_INLINE Rows rows_of(const bf16* from, Index stride, Index count, Index head, float* buffer) {
  for (Index i = 0; i < count; ++i)
    for_lanes(
        head, [&](Index d, Index n) __attribute__((always_inline)) {
          store(buffer + i * head + d, load(from + i * stride + d, n), n);
        });
  return {buffer, head};
}
/// Floats of such a buffer: none where the rows are fp32 already.
template <class T>
inline constexpr Index buffer_size = std::is_same_v<T, float> ? 1 : block* largest_head;

struct Softmax {
  Floats top[vectors];    // largest score so far
  Floats total[vectors];  // sum of exp(score - top)
};

/// Takes a block of scores (n, 64) in: turns them into exp(score - top) and returns by `shrink` what earlier
/// sums are multiplied with.
PENSTOCK_INLINE void absorb(Softmax& softmax, Index n, float* scores, Floats* shrink) {
  for (Index v = 0; v < vectors; ++v) {
    Floats top = softmax.top[v];
    for (Index j = 0; j < n; ++j) top = larger(top, load(scores + j * block + v * lanes));
    const Floats reference =
        select(top == splat(-infinity), splat(0.0f), top);  // nothing seen yet: exp(-inf) = 0
    shrink[v] = exponential(softmax.top[v] - reference);
    Floats total = softmax.total[v] * shrink[v];
    for (Index j = 0; j < n; ++j) {
      const Floats p = exponential(load(scores + j * block + v * lanes) - reference);
      store(scores + j * block + v * lanes, p);
      total += p;
    }
    softmax.top[v] = top;
    softmax.total[v] = total;
  }
}

template <class T>
void forward_block(const QueryBlock& q, const T* query, const T* k, const T* v, T* out, float* lse) {
  const AttentionShape& s = *q.shape;
  const Index head = s.head_size;
  alignas(64) float query_t[largest_head * block];
  alignas(64) float scores[block * block];
  alignas(64) float sums[block * largest_head];
  alignas(64) float factors[block];
  alignas(64) float buffer[buffer_size<T>];
  transpose_block(query, s.q_stride, q.count, head, s.scale, query_t);
  const Index used = div_up(q.count, lanes) * lanes;  // columns of scores that are worth computing
  if (used < block) zero(scores, block * block);
  Softmax softmax;
  for (Index i = 0; i < vectors; ++i) softmax.top[i] = splat(-infinity), softmax.total[i] = Floats{};

  bool first = true;
  const Index end = q.end_key();
  for (Index key = q.begin_key(); key < end; key += block) {
    const Index n = end - key < block ? end - key : block;
    const Rows keys = rows_of(k + key * s.k_stride, s.k_stride, n, head, buffer);
    small_product(n, used, head, {keys.data, keys.stride, 1}, query_t, block, scores, block, false);
    if (!q.sees_all(key, n)) mask_scores(q, key, n, scores);
    Floats shrink[vectors];
    absorb(softmax, n, scores, shrink);
    if (!first) {
      for (Index i = 0; i < vectors; ++i) store(factors + i * lanes, shrink[i]);
      for (Index i = 0; i < q.count; ++i)
        if (factors[i] != 1.0f)
          for (Index d = 0; d < head; ++d) sums[i * head + d] *= factors[i];
    }
    const Rows values = rows_of(v + key * s.v_stride, s.v_stride, n, head, buffer);
    small_product(q.count, head, n, {scores, 1, block}, values.data, values.stride, sums, head, !first);
    first = false;
  }

  for (Index i = 0; i < q.count; ++i) {
    const float total = softmax.total[i / lanes][i % lanes];
    T* row = out + i * s.out_stride;
    if (total == 0.0f) {  // sees no key
      zero(row, head);
      lse[i] = -infinity;
      continue;
    }
    const float scale = 1.0f / total;
    for (Index d = 0; d < head; ++d) row[d] = narrowed<T>(sums[i * head + d] * scale);
    lse[i] = softmax.top[i / lanes][i % lanes] + std::log(total);
  }
}

}  // namespace

void attention_forward(Stream& stream, const AttentionShape& shape, In q, In k, In v, In segment_ids, Out out,
                       Out lse) {
  for_storage(q.dtype, [&]<class T>() {
    const T* pq = values<T>(q);
    const T* pk = values<T>(k);
    const T* pv = values<T>(v);
    const std::int32_t* segments = segment_ids ? values<std::int32_t>(segment_ids) : nullptr;
    T* pout = values<T>(out);
    float* plse = values<float>(lse);
    check(shape, segments);
    const Index blocks = div_up(shape.queries, block);
    const Index per_kv = shape.heads / shape.kv_heads;
    stream.pool().parallel_for(shape.batch * shape.heads * blocks, [&](Index task) {
      const Index b = task / (shape.heads * blocks), h = task / blocks % shape.heads;
      const Index first = (blocks - 1 - task % blocks) * block;  // the long rows first
      const Index count = shape.queries - first < block ? shape.queries - first : block;
      const QueryBlock queries{&shape, segments ? segments + b * shape.keys : nullptr, first, count};
      const Index kv_offset = h / per_kv * shape.head_size;
      forward_block(queries, pq + (b * shape.queries + first) * shape.q_stride + h * shape.head_size,
                    pk + b * shape.keys * shape.k_stride + kv_offset,
                    pv + b * shape.keys * shape.v_stride + kv_offset,
                    pout + (b * shape.queries + first) * shape.out_stride + h * shape.head_size,
                    plse + (b * shape.heads + h) * shape.queries + first);
    });
  });
}

namespace {

/// Rows that gradients are added up in, fp32.
struct Sums {
  float* data;
  Index stride;
};

/// Pointers to one head's data in one batch row, at the first query of a block (q, out, dout, dq, lse) or at
/// key 0.
template <class T>
struct Backward {
  const T *q, *k, *v, *out, *dout;
  const float *lse, *dlse;  // dlse may be null
  T* dq;
  Sums dk, dv;
};

template <class T>
void zero_rows(T* rows, Index stride, Index count, Index head) {
  for (Index i = 0; i < count; ++i) zero(rows + i * stride, head);
}

/// Where rows of a gradient are added up: in place, or in `buffer` where they are not fp32.
PENSTOCK_INLINE Sums sums_of(float* rows, Index stride, Index, float*) { return {rows, stride}; }
PENSTOCK_INLINE Sums sums_of(bf16*, Index, Index head, float* buffer) { return {buffer, head}; }

/// Rounds what was added up elsewhere.
PENSTOCK_INLINE void finish_rows(const Sums&, float*, Index, Index, Index) {}
PENSTOCK_INLINE void finish_rows(const Sums& sums, bf16* rows, Index stride, Index count, Index head) {
  for (Index i = 0; i < count; ++i)
    for_lanes(
        head, [&](Index d, Index n) __attribute__((always_inline)) {
          store(rows + i * stride + d, load(sums.data + i * sums.stride + d, n), n);
        });
}

/// Gradients of one block of queries: dq is written, dk and dv are added to.
template <class T>
void backward_block(const QueryBlock& q, const Backward<T>& at) {
  const AttentionShape& s = *q.shape;
  const Index head = s.head_size;
  alignas(64) float query_t[largest_head * block], dout_t[largest_head * block];
  alignas(64) float p[block * block], dp[block * block];
  alignas(64) float lse[block], delta[block];
  alignas(64) float query_buffer[buffer_size<T>], dout_buffer[buffer_size<T>], dq_buffer[buffer_size<T>],
      buffer[buffer_size<T>];
  const Rows queries = rows_of(at.q, s.q_stride, q.count, head, query_buffer);
  const Rows douts = rows_of(at.dout, s.out_stride, q.count, head, dout_buffer);
  const Sums dq = sums_of(at.dq, s.q_stride, head, dq_buffer);
  transpose_block(at.q, s.q_stride, q.count, head, s.scale, query_t);
  transpose_block(at.dout, s.out_stride, q.count, head, 1.0f, dout_t);
  const Index used = div_up(q.count, lanes) * lanes;
  for (Index i = 0; i < block; ++i) {
    // delta = sum over d of dout * out, which is the sum over keys of p * dp
    Floats products{};
    if (i < q.count)
      for_lanes(
          head, [&](Index d, Index count) __attribute__((always_inline)) {
            products +=
                load(at.dout + i * s.out_stride + d, count) * load(at.out + i * s.out_stride + d, count);
          });
    delta[i] = sum(products);
    // d lse / d score is p: its gradient joins that of the score as p * dlse.
    if (at.dlse && i < q.count) delta[i] -= at.dlse[i];
    // A query that sees nothing has p = exp(score - infinity) = 0.
    lse[i] = i < q.count && at.lse[i] != -infinity ? at.lse[i] : infinity;
  }
  zero_rows(dq.data, dq.stride, q.count, head);

  const Index end = q.end_key();
  for (Index key = q.begin_key(); key < end; key += block) {
    const Index n = end - key < block ? end - key : block;
    const Rows values = rows_of(at.v + key * s.v_stride, s.v_stride, n, head, buffer);
    small_product(n, used, head, {values.data, values.stride, 1}, dout_t, block, dp, block, false);
    const Rows keys = rows_of(at.k + key * s.k_stride, s.k_stride, n, head, buffer);
    small_product(n, used, head, {keys.data, keys.stride, 1}, query_t, block, p, block, false);
    if (!q.sees_all(key, n)) mask_scores(q, key, n, p);
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < used; i += lanes) {
        const Index e = j * block + i;
        const Floats weight = exponential(load(p + e) - load(lse + i));
        store(p + e, weight);
        store(dp + e, weight * (load(dp + e) - load(delta + i)) * splat(s.scale));
      }
    small_product(n, head, q.count, {p, block, 1}, douts.data, douts.stride, at.dv.data + key * at.dv.stride,
                  at.dv.stride, true);
    small_product(n, head, q.count, {dp, block, 1}, queries.data, queries.stride,
                  at.dk.data + key * at.dk.stride, at.dk.stride, true);
    small_product(q.count, head, n, {dp, 1, block}, keys.data, keys.stride, dq.data, dq.stride, true);
  }
  finish_rows(dq, at.dq, s.q_stride, q.count, head);
}

}  // namespace

void attention_backward(Stream& stream, const AttentionShape& shape, In q, In k, In v, In segment_ids, In out,
                        In lse, In dout, In dlse, Out workspace, Out dq, Out dk, Out dv) {
  const float* plse = values<float>(lse);
  const float* pdlse = values<float>(dlse);
  float* pworkspace = values<float>(workspace);
  const std::int32_t* segments = segment_ids ? values<std::int32_t>(segment_ids) : nullptr;
  check(shape, segments);
  const Index head = shape.head_size, per_kv = shape.heads / shape.kv_heads;
  for_storage(q.dtype, [&]<class T>() {
    const T* pq = values<T>(q);
    const T* pk = values<T>(k);
    const T* pv = values<T>(v);
    const T* pout = values<T>(out);
    const T* pdout = values<T>(dout);
    T* pdq = values<T>(dq);
    T* pdk = values<T>(dk);
    T* pdv = values<T>(dv);
    // One task owns a key/value head and adds what its query heads and their blocks give, ascending.
    stream.pool().parallel_for(shape.batch * shape.kv_heads, [&](Index task) {
      const Index b = task / shape.kv_heads, kv = task % shape.kv_heads;
      const Index k_offset = b * shape.keys * shape.k_stride + kv * head;
      const Index v_offset = b * shape.keys * shape.v_stride + kv * head;
      const auto buffer = [&](Index part) {  // of bf16 alone: sums of dk, then of dv
        return pworkspace ? pworkspace + (2 * task + part) * shape.keys * head : nullptr;
      };
      const Sums k_sums = sums_of(pdk + k_offset, shape.k_stride, head, buffer(0));
      const Sums v_sums = sums_of(pdv + v_offset, shape.v_stride, head, buffer(1));
      zero_rows(k_sums.data, k_sums.stride, shape.keys, head);
      zero_rows(v_sums.data, v_sums.stride, shape.keys, head);
      for (Index h = kv * per_kv; h < (kv + 1) * per_kv; ++h)
        for (Index first = 0; first < shape.queries; first += block) {
          const Index count = shape.queries - first < block ? shape.queries - first : block;
          const Index q_offset = (b * shape.queries + first) * shape.q_stride + h * head;
          const Index out_offset = (b * shape.queries + first) * shape.out_stride + h * head;
          const Index lse_offset = (b * shape.heads + h) * shape.queries + first;
          backward_block<T>(
              {&shape, segments ? segments + b * shape.keys : nullptr, first, count},
              {pq + q_offset, pk + k_offset, pv + v_offset, pout + out_offset, pdout + out_offset,
               plse + lse_offset, pdlse ? pdlse + lse_offset : nullptr, pdq + q_offset, k_sums, v_sums});
        }
      finish_rows(k_sums, pdk + k_offset, shape.k_stride, shape.keys, head);
      finish_rows(v_sums, pdv + v_offset, shape.v_stride, shape.keys, head);
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
