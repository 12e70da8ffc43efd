// GELU in its two forms, with a bias added on the way in.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// Which function is meant (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
enum class GeluForm : std::uint8_t {
  tanh,  ///< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's gelu_new
  erf,   ///< x/2 (1 + erf(x / sqrt(2))): the definition
};

/// y (rows, cols) = gelu(x + bias); bias (cols) may be absent.
PENSTOCK_KERNEL(gelu_forward, GeluForm form, Index rows, Index cols, In x, In bias, Out y);
/// dx (rows, cols) = dy * gelu'(x + bias)
PENSTOCK_KERNEL(gelu_backward, GeluForm form, Index rows, Index cols, In x, In bias, In dy, Out dx);
/// dbias (cols) [+]= sum over rows of dy * gelu'(x + bias). Rows ascend, in double.
PENSTOCK_KERNEL(gelu_backward_bias, GeluForm form, Index rows, Index cols, In x, In bias, In dy,
                bool accumulate, Out dbias);

}  // namespace penstock::kernels
