// Optimizer updates over flat buffers, with torch's semantics.
#pragma once

#include "core/step_state.h"
#include "kernels/kernel.h"

namespace penstock::kernels {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

/// AdamW (torch.optim.AdamW: decoupled decay) on n elements, in place. g is multiplied by state->clip_factor;
/// the rate is state->learning_rate; bias correction uses state->updates (from 1): p *= 1 - lr wd; m = b1 m +
/// (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps).
PENSTOCK_KERNEL(adamw, Index n, const AdamWSettings& settings, const StepState* state, In g, Out p, Out m,
                Out v);

struct SgdSettings {
  double momentum = 0, weight_decay = 0;
};

/// SGD with momentum as torch.optim.SGD has it, dampening 0: g += wd p; b = momentum b + g (b = g at the
/// first update); p -= lr b. Without momentum `b` is not touched and may be absent.
PENSTOCK_KERNEL(sgd, Index n, const SgdSettings& settings, const StepState* state, In g, Out p, Out b);

}  // namespace penstock::kernels
