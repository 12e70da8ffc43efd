// SwiGLU, the gated unit of LLaMA's feed-forward layer.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y = silu(gate) * up over n elements, silu(g) = g / (1 + e^-g) (Shazeer, "GLU Variants Improve
/// Transformer", 2020).
PENSTOCK_KERNEL(swiglu_forward, Index n, In gate, In up, Out y);
/// dgate = dy * up * silu'(gate), dup = dy * silu(gate). Either may be absent.
PENSTOCK_KERNEL(swiglu_backward, Index n, In gate, In up, In dy, Out dgate, Out dup);

}  // namespace penstock::kernels
