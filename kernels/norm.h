// Layer normalisation over the last dimension.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y (rows, cols) = (x - mean) * rstd * gain + bias; mean and rstd (rows) fp32 are kept for the backward.
/// rstd = 1 / sqrt(variance + eps), variance over cols without Bessel's correction. gain and bias are (cols).
PENSTOCK_KERNEL(layer_norm_forward, Index rows, Index cols, float eps, In x, In gain, In bias, Out y, Out mean, Out rstd);

/// dx (rows, cols)
PENSTOCK_KERNEL(layer_norm_backward_input, Index rows, Index cols, In x, In gain, In mean, In rstd, In dy, Out dx);

/// dgain (cols) [+]= sum over rows of dy * xhat; dbias (cols) [+]= sum over rows of dy. Rows ascend. Either may be absent.
PENSTOCK_KERNEL(layer_norm_backward_weight, Index rows, Index cols, In x, In mean, In rstd, In dy, bool accumulate_gain,
                Out dgain, bool accumulate_bias, Out dbias);

}  // namespace penstock::kernels
