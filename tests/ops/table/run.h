// Running a sample: one tape a micro-batch, weights shared between them.
#pragma once

#include <optional>

#include "autograd/tape.h"
#include "ops/table/record.h"
#include "support/simple_weights.h"

namespace penstock::testing {

/// The weights of a sample in memory of a rank.
class SampleWeights {
 public:
  SampleWeights(RankContext& context, const Sample& sample);

  SimpleWeights& resolver() { return resolver_; }
  /// The handle of an argument; throws ValueError for one that is no weight.
  const WeightHandle& handle(std::size_t argument) const;

 private:
  SimpleWeights resolver_;
  std::vector<std::optional<WeightHandle>> handles_;
};

/// One micro-batch of a sample.
class SampleRun {
 public:
  struct Options {
    bool weights_as_activations = false;  ///< every gradient is then one of the I half
    int number = 0;  ///< of the micro-batch: activations are multiplied by 1 + number / 2
    Layout cotangent = Layout::dense;
    bool constant_cotangent = false;  ///< all ones
    int only = -1;                    ///< the one argument that needs a gradient; -1: all that can
  };

  SampleRun(RankContext& context, const Sample& sample, SampleWeights& weights, const Options& options);
  SampleRun(RankContext& context, const Sample& sample, SampleWeights& weights)
      : SampleRun(context, sample, weights, Options{}) {}

  void forward();
  /// The gradient of the output, of its dtype; the backward draws it where that was not done before.
  void draw_cotangent();
  void backward();
  void backward_input();
  void backward_weight() { tape_.backward_weight(); }

  const Shape& output_shape() const { return output_.shape(); }
  /// Bytes that the output keeps alive by itself: none where it is a view of an input.
  Index output_bytes() const { return sample_.view ? 0 : output_.tensor().bytes(); }
  /// The output as fp32 or fp64 values.
  std::vector<double> output() const;
  /// Lets go of the output and of the inputs.
  void drop_values();
  /// Gradient of an argument that is no weight; empty where there is none. Once.
  std::vector<float> input_gradient(std::size_t argument);
  /// Gradients of all arguments in order, those of weights from their accumulators.
  std::vector<std::vector<float>> gradients();
  /// The values that the arguments have in this micro-batch.
  const std::vector<std::vector<double>>& values() const { return values_; }
  const std::vector<double>& cotangent() const { return cotangent_values_; }

 private:
  const Sample& sample_;
  SampleWeights& weights_;
  Options options_;
  DeviceStepState state_;
  Tape tape_;
  std::vector<std::vector<double>> values_;
  Variables inputs_;
  Variable output_;
  DType output_dtype_ = DType::f32;
  Tensor cotangent_;
  std::vector<double> cotangent_values_;
};

/// The step state that the samples run with.
StepState sample_state();

}  // namespace penstock::testing
