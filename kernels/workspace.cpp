// Workspace sizes that kernels publish. They hold for every device that there is a body for.
#include "kernels/attention.h"
#include "kernels/cpu/blocks.h"
#include "kernels/reduce.h"

namespace penstock::kernels {

Index sum_of_squares_workspace(Index n) { return div_up(n, cpu::sum_of_squares_block); }

Index attention_backward_workspace(const AttentionShape& shape) {
  (void)shape;  // blocks of scores and gradients live on the stacks of the threads
  return 0;
}

}  // namespace penstock::kernels
