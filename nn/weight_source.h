// WeightSource: where the values of a model's parameters come from, such as a checkpoint or a directory of
// another program's files.
#pragma once

#include "nn/weight_store.h"

namespace penstock {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Sets every value of the blocks that the store holds, and reads no other tensor. Throws IoError for one
  /// that is missing or of another shape.
  virtual void load_weights(const Model& model, WeightStore& weights) const = 0;

 protected:
  WeightSource() = default;
  WeightSource(const WeightSource&) = default;
  WeightSource(WeightSource&&) = default;
  WeightSource& operator=(const WeightSource&) = default;
  WeightSource& operator=(WeightSource&&) = default;
};

}  // namespace penstock
