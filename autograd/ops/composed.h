// Fused ops as compositions of general ones: what they are compared with, and what to fall back on where a
// device has no fused kernel. Slower, and they keep every value between. In fp32.
#pragma once

#include "autograd/ops/attention.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"

namespace penstock::ops::composed {

/// matmul, then add. x is (..., in), or (rows, in).
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {},
                WeightLayout layout = WeightLayout::in_out);

/// x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 of x, or of x + bias. The erf form has no general op:
/// throws ValueError for it.
Variable gelu(const Variable& x, GeluForm form = GeluForm::tanh, const Variable& bias = {});

Variable swiglu(const Variable& gate, const Variable& up);

/// (x - mean) / sqrt(mean of (x - mean)^2 + eps) * gain + bias
Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias, float eps = 1e-5f);
/// x / sqrt(mean of x^2 + eps) * gain
Variable rms_norm(const Variable& x, const Variable& gain, float eps = 1e-5f);

/// The sum by log_softmax and a choice of the target's column; one fp32, not fp64, of shape (1).
Variable cross_entropy_sum(const Variable& logits, const Variable& targets, float label_smoothing = 0.0f,
                           std::int32_t ignored = kernels::ignored_target);

/// The output of `ops::attention`, by matmul, softmax of all scores (B, heads, Tq, Tk), matmul. q is (B, Tq,
/// heads D).
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options,
                   const Variable& segment_ids = {});

}  // namespace penstock::ops::composed
