// Layer and RMS normalisation over the last dimension, alone and behind a residual addition.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y (rows, cols) = (x - mean) * rstd * gain + bias; mean and rstd (rows) fp32 are kept for the backward.
/// rstd = 1 / sqrt(variance + eps), variance over cols without Bessel's correction. gain and bias are (cols);
/// bias may be absent.
PENSTOCK_KERNEL(layer_norm_forward, Index rows, Index cols, float eps, In x, In gain, In bias, Out y,
                Out mean, Out rstd);
/// The same of a + b, which is kept as `sum` (rows, cols).
PENSTOCK_KERNEL(add_layer_norm_forward, Index rows, Index cols, float eps, In a, In b, In gain, In bias,
                Out sum, Out y, Out mean, Out rstd);

/// dx (rows, cols), to which `residual` (rows, cols) is added where it is given: the gradient that goes
/// around the norm.
PENSTOCK_KERNEL(layer_norm_backward_input, Index rows, Index cols, In x, In gain, In mean, In rstd, In dy,
                In residual, Out dx);

/// dgain (cols) [+]= sum over rows of dy * xhat; dbias (cols) [+]= sum over rows of dy. Rows ascend. Either
/// may be absent.
PENSTOCK_KERNEL(layer_norm_backward_weight, Index rows, Index cols, In x, In mean, In rstd, In dy,
                bool accumulate_gain, Out dgain, bool accumulate_bias, Out dbias);

/// y (rows, cols) = x * rstd * gain, rstd (rows) fp32 = 1 / sqrt(mean of x^2 + eps) (Zhang and Sennrich,
/// "Root Mean Square Layer Normalization", 2019). Squares are summed in double: every finite fp32 row has a
/// finite sum.
PENSTOCK_KERNEL(rms_norm_forward, Index rows, Index cols, float eps, In x, In gain, Out y, Out rstd);
/// The same of a + b, which is kept as `sum` (rows, cols).
PENSTOCK_KERNEL(add_rms_norm_forward, Index rows, Index cols, float eps, In a, In b, In gain, Out sum, Out y,
                Out rstd);

/// dx (rows, cols), to which `residual` (rows, cols) is added where it is given.
PENSTOCK_KERNEL(rms_norm_backward_input, Index rows, Index cols, In x, In gain, In rstd, In dy, In residual,
                Out dx);

/// dgain (cols) [+]= sum over rows of dy * x * rstd. Rows ascend, in double.
PENSTOCK_KERNEL(rms_norm_backward_weight, Index rows, Index cols, In x, In rstd, In dy, bool accumulate,
                Out dgain);

}  // namespace penstock::kernels
