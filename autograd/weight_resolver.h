// How the tape reaches weights: by handle, resolved anew each time a half runs, so that the weight version is
// a decision of whoever owns the weights (stashed, newest, gathered again), not of the nodes.
#pragma once

#include "core/tensor.h"

namespace penstock {

/// Names a parameter of a block at a version.
struct WeightHandle {
  int block = 0;      ///< index of the block in the model
  int parameter = 0;  ///< index of the parameter within the block
  int version = 0;    ///< number of updates in the weights that the forward used

  friend bool operator==(const WeightHandle&, const WeightHandle&) = default;
};

/// Where a gradient goes: written when `accumulate` is false, added to otherwise.
struct GradientTarget {
  Tensor tensor;
  bool accumulate = false;
};

class WeightResolver {
 public:
  virtual ~WeightResolver() = default;
  /// The weight's values for a half that runs now.
  virtual Tensor resolve(const WeightHandle& handle) = 0;
  /// The fp32 accumulator of the weight's gradient. Whoever asks writes it before it asks for the same one
  /// again.
  virtual GradientTarget gradient(const WeightHandle& handle) = 0;
};

}  // namespace penstock
