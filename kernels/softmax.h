// Softmax and its logarithm over rows.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y (rows, cols) = exp(x) / sum over the row of exp(x). A row that is -infinity everywhere (all masked)
/// gives zeros; one with NaN or +infinity gives NaN.
PENSTOCK_KERNEL(softmax_forward, Index rows, Index cols, In x, Out y);
/// dx = y (dy - sum over the row of y dy)
PENSTOCK_KERNEL(softmax_backward, Index rows, Index cols, In y, In dy, Out dx);

/// y (rows, cols) = x - log sum over the row of exp(x). A row that is -infinity everywhere stays so.
PENSTOCK_KERNEL(log_softmax_forward, Index rows, Index cols, In x, Out y);
/// dx = dy - exp(y) sum over the row of dy; 0 in a row that is -infinity everywhere
PENSTOCK_KERNEL(log_softmax_backward, Index rows, Index cols, In y, In dy, Out dx);

}  // namespace penstock::kernels
