// Softmax over the last dimension.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// exp(x) / sum exp(x) over the last dimension of x (..., C), in fp32. -infinity masks an element; a row that
/// is masked whole gives zeros, and no gradient.
Variable softmax(const Variable& x);

/// x - log sum exp(x) over the last dimension. A row that is -infinity everywhere stays so, and has no
/// gradient.
Variable log_softmax(const Variable& x);

}  // namespace penstock::ops
