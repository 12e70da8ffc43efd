// A weight resolver for tests: plain tensors, one fp32 accumulator each, and a count of what was asked.
#pragma once

#include <string>
#include <vector>

#include "autograd/weight_resolver.h"

namespace penstock::testing {

class SimpleWeights final : public WeightResolver {
 public:
  /// The handle of a new weight with these values. Its accumulator is dense.
  WeightHandle add(const Tensor& value) {
    values_.push_back(value);
    gradients_.push_back(Tensor::empty(value.context(), value.shape(), DType::f32, MemoryKind::gradient));
    written_.push_back(false);
    return {0, static_cast<int>(values_.size()) - 1, 0};
  }

  Tensor resolve(const WeightHandle& handle) override {
    ++resolved;
    return values_[place(handle)];
  }
  GradientTarget gradient(const WeightHandle& handle) override {
    const std::size_t p = place(handle);
    const bool accumulate = written_[p];
    written_[p] = true;
    return {gradients_[p], accumulate};
  }

  /// Replaces the values that later halves see.
  void set(const WeightHandle& handle, const Tensor& value) { values_[place(handle)] = value; }
  bool has_gradient(const WeightHandle& handle) const { return written_[place(handle)]; }
  std::vector<float> gradient_values(const WeightHandle& handle) const {
    return has_gradient(handle) ? gradients_[place(handle)].to_vector<float>() : std::vector<float>();
  }

  int resolved = 0;  ///< calls of resolve

 private:
  static std::size_t place(const WeightHandle& handle) { return static_cast<std::size_t>(handle.parameter); }

  Tensors values_, gradients_;
  std::vector<bool> written_;
};

}  // namespace penstock::testing
