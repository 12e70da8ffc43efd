// Parameter: the declaration of a weight. Values live in a WeightStore, so that one model definition serves
// every rank.
#pragma once

#include <string>
#include <vector>

#include "core/shape.h"

namespace penstock {

/// Initial values, a function of the run's seed and the parameter's full name alone.
struct Initializer {
  enum class Kind : std::uint8_t { zeros, ones, normal } kind = Kind::zeros;
  float deviation = 0.0f;  ///< of a normal distribution around 0

  static Initializer zeros() { return {Kind::zeros, 0.0f}; }
  static Initializer ones() { return {Kind::ones, 0.0f}; }
  static Initializer normal(float deviation) { return {Kind::normal, deviation}; }
};

struct Parameter {
  std::string
      name;     ///< full name, as the model's Hugging Face files have it; equal names are one tied parameter
  Shape shape;  ///< global shape
  Initializer initializer;
  int index = 0;  ///< within its block
  bool frozen =
      false;  ///< has a value and nothing else: no gradient, no optimizer state, no update, no decay

  /// Weight decay applies to parameters of two or more dimensions.
  bool decays() const { return shape.rank() >= 2; }
};

/// One parameter of a whole model, with every place that uses it. A tied parameter has several.
struct ParameterRecord {
  struct Use {
    int block = 0, parameter = 0;
  };
  std::string name;
  Shape shape;
  Initializer initializer = {};  ///< of the first use: it holds for all
  bool decays = false;
  bool frozen = false;
  std::vector<Use> uses;  ///< in model order: gradients of the uses are added in this order
};

}  // namespace penstock
