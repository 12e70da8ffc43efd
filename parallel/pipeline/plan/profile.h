// What the blocks of a model cost and hand on, found by running them on the meta device: no formulas beside
// the code.
#pragma once

#include <vector>

#include "nn/model.h"
#include "parallel/pipeline/runtime/batch_source.h"

namespace penstock {

struct TensorSpec {
  Shape shape;
  DType dtype = DType::f32;

  /// Gradients exist for floating-point values alone.
  bool has_gradient() const { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
};

/// One block on one micro-batch.
struct BlockProfile {
  std::vector<TensorSpec> outputs;
  double forward_flops = 0, input_flops = 0, weight_flops = 0;
};

struct ProfileOptions {
  /// For each block what is run again in its I half and thus costs there too; empty: nothing.
  std::vector<Recompute> recompute = {};
  DType compute = DType::f32;  ///< fp32 or bf16
  Mode mode = Mode::train;     ///< others have no backward
};

/// All blocks on sequences of a step, in order; the last one's figures include the loss where the source has
/// targets (generation has none). Throws what a block's forward throws, and ValueError for one that gives a
/// value that is none.
std::vector<BlockProfile> profile_blocks(const Model& model, BatchSource& source, Index step,
                                         SequenceSpan sequences, const ProfileOptions& options = {});

}  // namespace penstock
