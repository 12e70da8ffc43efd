// What changes from one training step to the next, in one device-resident record that kernels read by
// address: a captured graph of kernels stays right when the values change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace penstock {

struct StepState {
  std::int64_t step = 0;  ///< number of the step, from 1; keys the dropout masks
  std::int64_t updates =
      0;  ///< number of the optimizer update, from 1 (skipped steps do not count): bias correction
  float loss_seed = 1.0f;    ///< gradient of the summed loss: 1 / valid targets of the whole global batch
  float clip_factor = 1.0f;  ///< multiplies every gradient in the optimizer
  float learning_rate = 0.0f;
};

/// The record in the memory of a rank's device.
class DeviceStepState {
 public:
  explicit DeviceStepState(RankContext& context)
      : memory_(Tensor::zeros(context, Shape{static_cast<Index>(sizeof(StepState))}, DType::u8,
                              MemoryKind::workspace)) {}

  void set(const StepState& state) { memory_.copy_from_host(&state, sizeof(StepState)); }
  /// Address on the device; null on meta.
  const StepState* get() const { return static_cast<const StepState*>(memory_.data()); }
  /// The loss seed as a tensor (1) fp32.
  Tensor loss_seed() const {
    return Tensor::view_of(memory_.storage(), offsetof(StepState, loss_seed) / sizeof(float), Shape{1},
                           DType::f32);
  }

 private:
  Tensor memory_;
};

}  // namespace penstock
