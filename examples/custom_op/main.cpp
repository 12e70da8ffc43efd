// Checks the op as part of a block: its gradients against differences of the formula in double, and that the
// two halves of a backward, one after the other, give the bits of the whole.
#include <cmath>
#include <string>

#include "core/random.h"
#include "nn/layers.h"
#include "nn/model.h"
#include "nn/weight_store.h"
#include "smooth_leaky_relu.h"

using namespace penstock;

/// The op with a slope that is learned.
class Activation final : public Block {
 public:
  explicit Activation(const std::string& name)
      : Block(name), slope_(scope(name).declare("slope", Shape{1}, Initializer::normal(0.5f))) {}
  Variables forward(const Variables& in, const BlockContext& context) const override {
    return {smooth_leaky_relu(in[0], context.weight(slope_))};
  }

 private:
  const Parameter& slope_;
};

/// The sum of r y, written anew and in double. `at` holds the x, then the slope.
double weighted_sum(const std::vector<double>& at, const std::vector<float>& r) {
  double sum = 0;
  const double a = at.back();
  for (std::size_t i = 0; i < r.size(); ++i)
    sum += r[i] * (a * at[i] + (1 - a) * std::log(1 + std::exp(at[i])));
  return sum;
}

/// Its derivatives as the tape finds them: those of the x, then that of the slope.
std::vector<float> gradients(RankContext& context, const Model& model, WeightStore& weights, const Tensor& x,
                             const Tensor& r, bool in_halves) {
  weights.begin_step();
  Tape tape(context, &weights);
  const Variable input = tape.input(x, true);
  const Variables y = model.block(0).forward({input}, {.rank = &context, .weights = &weights, .tape = &tape});
  if (in_halves) {
    tape.backward_input(y, {{r}});
    tape.backward_weight();
  } else {
    tape.backward(y, {{r}});
  }
  std::vector<float> all = tape.take_grad(input).to_vector<float>();
  all.push_back(static_cast<float>(weights.gradient_of(0, 0).item()));
  return all;
}

int main() try {
  RankContext context;
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Activation>("activation"));
  const Model model("check", std::move(blocks), {});
  WeightStore weights(context, model, {0}, {.gradients = true});
  weights.initialize(1);

  std::vector<float> x(35), r(35);  // r: a random gradient from above
  fill_uniform(random_key(1, RandomPurpose::data, "x"), 0, 0, 0, 35, -4, 4, x.data());
  fill_uniform(random_key(1, RandomPurpose::data, "r"), 0, 0, 0, 35, -1, 1, r.data());
  const Tensor tx = Tensor::from(context, {7, 5}, x), tr = Tensor::from(context, {7, 5}, r);
  const std::vector<float> whole = gradients(context, model, weights, tx, tr, false);
  const bool same = gradients(context, model, weights, tx, tr, true) == whole;

  constexpr double h = 1e-5, tolerance = 1e-5;
  std::vector<double> point(x.begin(), x.end());
  point.push_back(weights.value(0, 0).item());
  double largest = 0;
  int wrong = 0;
  for (std::size_t k = 0; k < point.size(); ++k) {
    std::vector<double> above = point, below = point;
    above[k] += h;
    below[k] -= h;
    const double difference = (weighted_sum(above, r) - weighted_sum(below, r)) / (2 * h);
    const double error = std::abs(whole[k] - difference);
    if (!(error <= tolerance)) ++wrong;  // a NaN is wrong
    largest = std::max(largest, error);
  }
  fmt::print("{} derivatives, {} wrong, largest error {:.1e}; the halves {} the whole\n", point.size(), wrong,
             largest, same ? "equal" : "DIFFER from");
  return wrong == 0 && same ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "custom_op: {}\n", error.what());
  return 1;
}
