// Workspace sizes that kernels publish. They hold for every device that there is a body for.
#include "kernels/attention.h"
#include "kernels/cpu/blocks.h"
#include "kernels/loss.h"
#include "kernels/reduce.h"
#include "kernels/reduction.h"

namespace penstock::kernels {

Index sum_of_squares_workspace(Index n) { return div_up(n, cpu::sum_of_squares_block); }

Index reduce_sum_workspace(const ReduceShape& shape) {
  const bool blocks = shape.inner == 1 && shape.count > cpu::reduce_sum_block;
  return blocks ? shape.outer * div_up(shape.count, cpu::reduce_sum_block) : 0;
}

Index squared_error_workspace(Index n) { return div_up(n, cpu::squared_error_block); }

// Blocks of scores and gradients live on the stacks of the threads.
Index attention_backward_workspace(const AttentionShape& shape, DType dtype) {
  return dtype == DType::f32 ? 0 : 2 * shape.batch * shape.kv_heads * shape.keys * shape.head_size;
}

}  // namespace penstock::kernels
