// Embedding look-up and its gradient, see kernels/embedding.h.
#include "kernels/embedding.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

void check_ids(Index rows, Index vocabulary, const std::int32_t* ids) {
  for (Index row = 0; row < rows; ++row)
    if (ids[row] < 0 || ids[row] >= vocabulary) throw_id_out_of_range(row, ids[row], vocabulary);
}

}  // namespace

void embedding_forward(Stream& stream, Index rows, Index cols, Index vocabulary, In ids, In table, Out y) {
  for_storage(table.dtype, [&]<class T>() {
    const std::int32_t* pids = values<std::int32_t>(ids);
    const T* ptable = values<T>(table);
    T* py = values<T>(y);
    check_ids(rows, vocabulary, pids);
    stream.pool().parallel_ranges(rows, rows_per_task(cols), [=](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        std::memcpy(py + row * cols, ptable + pids[row] * cols, static_cast<std::size_t>(cols) * sizeof(T));
    });
  });
}

void embedding_backward(Stream& stream, Index rows, Index cols, Index vocabulary, bool accumulate, In ids,
                        In dy, Out dtable) {
  for_storage(dy.dtype, [&]<class T>() {
    constexpr Index strip = 64;
    const std::int32_t* pids = values<std::int32_t>(ids);
    const T* pdy = values<T>(dy);
    float* pdtable = values<float>(dtable);
    check_ids(rows, vocabulary, pids);
    if (!accumulate)
      stream.pool().parallel_ranges(vocabulary, rows_per_task(cols), [=](Index begin, Index end) {
        std::memset(pdtable + begin * cols, 0,
                    static_cast<std::size_t>((end - begin) * cols) * sizeof(float));
      });
    // A task owns a strip of columns, so no two tasks touch one element and the rows of an id ascend.
    stream.pool().parallel_ranges(cols, strip, [=](Index begin, Index end) {
      for (Index row = 0; row < rows; ++row) {
        const T* from = pdy + row * cols;
        float* to = pdtable + pids[row] * cols;
        for (Index i = begin; i < end; ++i) to[i] += widened(from[i]);
      }
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
