// Gather and its gradient, see kernels/indexing.h.
#include "kernels/indexing.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

constexpr Index strip = 64;  // elements of the inner dimension that a task owns

template <class I>
void check(const IndexShape& s, const I* index) {
  const Index entries = (s.index_outer != 0 ? s.outer : 1) * s.count * (s.index_inner != 0 ? s.inner : 1);
  for (Index place = 0; place < entries; ++place)
    if (index[place] < 0 || index[place] >= s.rows) throw_index_out_of_range(place, index[place], s.rows);
}

/// Calls body(element of x, element of y, how many) for neighbouring elements, the count ascending, for all o
/// and the inner elements of a strip.
template <class I, class Body>
PENSTOCK_INLINE void for_strip(const IndexShape& s, const I* index, Index task, Body&& body) {
  const Index strips = (s.inner + strip - 1) / strip;
  const Index o = task / strips, begin = task % strips * strip;
  const Index width = s.inner - begin < strip ? s.inner - begin : strip;
  for (Index k = 0; k < s.count; ++k) {
    const Index y = (o * s.count + k) * s.inner + begin;
    const I* entry = index + o * s.index_outer + k * s.index_count + begin * s.index_inner;
    if (s.index_inner == 0)
      body((o * s.rows + *entry) * s.inner + begin, y, width);
    else
      for (Index i = 0; i < width; ++i)
        body((o * s.rows + entry[i * s.index_inner]) * s.inner + begin + i, y + i, Index{1});
  }
}

PENSTOCK_INLINE Index tasks(const IndexShape& s) { return s.outer * ((s.inner + strip - 1) / strip); }

template <class I, class T>
void gather_as(Stream& stream, const IndexShape& s, const I* index, const void* x, void* y) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  stream.pool().parallel_for(tasks(s), [=](Index task) {
    for_strip(
        s, index, task, [=](Index place, Index out, Index width) __attribute__((always_inline)) {
          for (Index i = 0; i < width; ++i) to[out + i] = from[place + i];
        });
  });
}

template <class I>
void gather_by(Stream& stream, const IndexShape& s, const I* index, In x, Out y) {
  check(s, index);
  switch (x.dtype) {  // by width alone
    case DType::f64:
    case DType::i64:
      return gather_as<I, std::uint64_t>(stream, s, index, x.data, y.data);
    case DType::f32:
    case DType::i32:
      return gather_as<I, std::uint32_t>(stream, s, index, x.data, y.data);
    case DType::bf16:
    case DType::f16:
      return gather_as<I, std::uint16_t>(stream, s, index, x.data, y.data);
    case DType::u8:
      return gather_as<I, std::uint8_t>(stream, s, index, x.data, y.data);
  }
}

template <class I, class T>
void scatter_by(Stream& stream, const IndexShape& s, bool accumulate, const I* index, const T* dy,
                float* dx) {
  check(s, index);
  const Index strips = (s.inner + strip - 1) / strip;
  stream.pool().parallel_for(tasks(s), [=](Index task) {
    if (!accumulate) {
      const Index o = task / strips, begin = task % strips * strip;
      const Index width = s.inner - begin < strip ? s.inner - begin : strip;
      for (Index row = 0; row < s.rows; ++row)
        std::memset(dx + (o * s.rows + row) * s.inner + begin, 0,
                    static_cast<std::size_t>(width) * sizeof(float));
    }
    for_strip(
        s, index, task, [=](Index place, Index in, Index width) __attribute__((always_inline)) {
          for (Index i = 0; i < width; ++i) dx[place + i] += widened(dy[in + i]);
        });
  });
}

}  // namespace

void gather(Stream& stream, const IndexShape& shape, In index, In x, Out y) {
  if (x.dtype != y.dtype) throw_wrong_dtype(x.dtype, y.dtype);
  if (index.dtype == DType::i32)
    gather_by(stream, shape, values<std::int32_t>(index), x, y);
  else
    gather_by(stream, shape, values<std::int64_t>(index), x, y);
}

void scatter_add(Stream& stream, const IndexShape& shape, bool accumulate, In index, In dy, Out dx) {
  float* pdx = values<float>(dx);
  for_storage(dy.dtype, [&]<class T>() {
    if (index.dtype == DType::i32)
      scatter_by(stream, shape, accumulate, values<std::int32_t>(index), values<T>(dy), pdx);
    else
      scatter_by(stream, shape, accumulate, values<std::int64_t>(index), values<T>(dy), pdx);
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
