// Optimizers over flat buffers, and the gradient norm as a table of one number a parameter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "nn/weight_store.h"

namespace penstock {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// fp32 buffers of the parameters' size that it keeps.
  virtual int buffers() const = 0;
  /// Names of those buffers in checkpoints.
  virtual std::vector<std::string> buffer_names() const = 0;
  /// One update of everything in the store; rate, clip factor and update number come from `state` (on the
  /// device).
  virtual void step(RankContext& context, WeightStore& weights, const StepState* state) = 0;
};

/// torch.optim.AdamW. Decay applies to parameters of two or more dimensions.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(const kernels::AdamWSettings& settings) : settings_(settings) {}
  int buffers() const override { return 2; }
  std::vector<std::string> buffer_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void step(RankContext& context, WeightStore& weights, const StepState* state) override;

 private:
  kernels::AdamWSettings settings_;
};

/// torch.optim.SGD with momentum. Decay applies to parameters of two or more dimensions.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const kernels::SgdSettings& settings) : settings_(settings) {}
  int buffers() const override { return settings_.momentum != 0 ? 1 : 0; }
  std::vector<std::string> buffer_names() const override;
  void step(RankContext& context, WeightStore& weights, const StepState* state) override;

 private:
  kernels::SgdSettings settings_;
};

/// Sum of squares of the gradient of each parameter of the model, in model order; 0 for those whose first use
/// is not in the store, and for frozen ones. After finish_gradients. Added over ranks (each entry comes from
/// one) and summed in order, it gives every pipeline layout the same norm, bit for bit.
std::vector<double> gradient_norm_table(RankContext& context, const WeightStore& weights, const Model& model);

}  // namespace penstock
