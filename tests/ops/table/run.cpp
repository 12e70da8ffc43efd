// SampleRun.
#include "ops/table/run.h"

#include "autograd/convert.h"

namespace penstock::testing {

StepState sample_state() { return {.step = 7}; }

SampleWeights::SampleWeights(RankContext& context, const Sample& sample) {
  for (const Argument& a : sample.arguments) {
    handles_.emplace_back();
    if (a.role == Role::weight) handles_.back() = resolver_.add(make_tensor(context, a));
  }
}

const WeightHandle& SampleWeights::handle(std::size_t argument) const {
  require<ValueError>(handles_[argument].has_value(), "argument {} is no weight", argument);
  return *handles_[argument];
}

SampleRun::SampleRun(RankContext& context, const Sample& sample, SampleWeights& weights,
                     const Options& options)
    : sample_(sample),
      weights_(weights),
      options_(options),
      state_(context),
      tape_(context, &weights.resolver()) {
  state_.set(sample_state());
  const double factor = 1 + options.number / 2.0;
  for (std::size_t i = 0; i < sample.arguments.size(); ++i) {
    Argument a = sample.arguments[i];
    if (a.role == Role::activation)
      for (double& v : a.values) v = rounded(v * factor, a.dtype);
    values_.push_back(a.values);
    if (a.role == Role::data || (options.only >= 0 && options.only != static_cast<int>(i)))
      inputs_.emplace_back(make_tensor(context, a));
    else if (a.role == Role::weight && !options.weights_as_activations)
      inputs_.push_back(tape_.weight(weights.handle(i)));
    else
      inputs_.push_back(tape_.input(make_tensor(context, a), true));
  }
}

void SampleRun::forward() {
  output_ = sample_.apply(inputs_, state_.get());
  output_dtype_ = output_.tensor().dtype();
}

void SampleRun::draw_cotangent() {
  if (cotangent_.defined()) return;
  Argument cotangent =
      normal("cotangent of " + sample_.name + std::to_string(options_.number), sample_.output);
  if (options_.constant_cotangent) cotangent.values.assign(cotangent.values.size(), 1.0);
  if (output_dtype_ == DType::bf16) {
    cotangent.dtype = DType::bf16;
    for (double& v : cotangent.values) v = rounded(v, cotangent.dtype);
  }
  cotangent_ = make_tensor(tape_.context(), laid_out(cotangent, options_.cotangent));
  cotangent_values_ = cotangent.values;
}

void SampleRun::backward() {
  draw_cotangent();
  tape_.backward({&output_, 1}, {&cotangent_, 1});
}

void SampleRun::backward_input() {
  draw_cotangent();
  tape_.backward_input({&output_, 1}, {&cotangent_, 1});
}

std::vector<double> SampleRun::output() const {
  const Tensor& t = output_.tensor();
  if (t.dtype() == DType::f64) return t.to_vector<double>();
  const std::vector<float> values = converted(t, DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}

void SampleRun::drop_values() {
  output_.drop_value();
  for (Variable& v : inputs_) v.drop_value();
}

std::vector<float> SampleRun::input_gradient(std::size_t argument) {
  if (!inputs_[argument].tape() || inputs_[argument].kind() == ValueKind::weight) return {};
  const Tensor gradient = tape_.take_grad(inputs_[argument]);
  return gradient.defined() ? converted(gradient, DType::f32).to_vector<float>() : std::vector<float>();
}

std::vector<std::vector<float>> SampleRun::gradients() {
  std::vector<std::vector<float>> all;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const bool weight = sample_.arguments[i].role == Role::weight && !options_.weights_as_activations;
    all.push_back(weight ? weights_.resolver().gradient_values(weights_.handle(i)) : input_gradient(i));
  }
  return all;
}

}  // namespace penstock::testing
