// Affine map y = x W + b.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// How a linear weight is stored.
enum class WeightLayout : std::uint8_t {
  in_out,  ///< (in, out), as GPT-2's files have it
  out_in,  ///< (out, in), as torch.nn.Linear and an embedding table used as head have it
};

/// x (..., in) times weight, plus bias (out) where it is given: (..., out). Throws ShapeError where sizes do
/// not fit.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {},
                WeightLayout layout = WeightLayout::in_out);

}  // namespace penstock::ops
