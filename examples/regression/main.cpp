// A model of one's own on data of one's own: a deep network learns the surface z = sin(2x) cos(3y).
//
//   regression                  one rank
//   regression --ranks 2        a pipeline of two ranks, threads of this process
//   mpirun -n 2 regression      a pipeline of two processes
//
// Losses and gradient norms are printed in hexadecimal: all three print the same bits.
#include <cmath>
#include <string>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/losses.h"
#include "core/random.h"
#include "nn/layers.h"
#include "parallel/comm/launch.h"
#include "parallel/train/training_run.h"

using namespace penstock;

constexpr Index width = 32, layers = 6, points = 64;  // points of a step

/// The first block and the last: an affine map between the width of the data and that of the network.
class Projection final : public Block {
 public:
  Projection(const std::string& name, Index inputs, Index outputs)
      : Block(name), map_(scope(name), inputs, outputs, 1.0f / std::sqrt(static_cast<float>(inputs))) {}
  int layers() const override { return 0; }  // stays with its neighbour when the model is cut
  Variables forward(const Variables& in, const BlockContext& context) const override {
    return {map_(in[0], context)};
  }

 private:
  Linear map_;
};

/// A layer: x + tanh(x W + b) V + c.
class Residual final : public Block {
 public:
  explicit Residual(const std::string& name)
      : Block(name),
        in_(scope(name) / "in", width, width, 0.2f),
        out_(scope(name) / "out", width, width, 0.1f) {}
  Variables forward(const Variables& in, const BlockContext& context) const override {
    const Variable& x = in[0];  // (B, width)
    return {ops::add(x, out_(ops::tanh(in_(x, context)), context))};
  }

 private:
  Linear in_, out_;
};

Model make_model() {
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Projection>("first", 2, width));
  for (Index i = 0; i < layers; ++i)
    blocks.push_back(std::make_unique<Residual>("layer." + std::to_string(i)));
  blocks.push_back(std::make_unique<Projection>("last", width, 1));
  return Model("surface", std::move(blocks), [](const Variables& outputs, const Tensors& targets) {
    return ops::mse_sum(outputs[0], Variable(targets[0]));
  });
}

/// Random points of the surface. A point depends on step and number alone: each rank draws what it needs.
class Surface final : public BatchSource {
 public:
  explicit Surface(std::uint64_t seed) : key_(random_key(seed, RandomPurpose::data, "surface")) {}
  Index batch(Index) override { return points; }
  Index valid_targets(Index) override { return points; }  // the sum of the losses is divided by it
  MicroBatch load(RankContext& context, Index step, SequenceSpan part, bool inputs, bool targets) override {
    std::vector<float> places(static_cast<std::size_t>(2 * part.size())), heights;
    fill_uniform(key_, static_cast<std::uint32_t>(step), 0, 2 * part.first, 2 * part.size(), -1, 1,
                 places.data());
    for (std::size_t i = 0; i < places.size(); i += 2)
      heights.push_back(std::sin(2 * places[i]) * std::cos(3 * places[i + 1]));
    MicroBatch batch = micro_batch_of(context, part);
    if (inputs) batch.inputs = {Tensor::from(context, {part.size(), 2}, places)};
    if (targets) batch.targets = {Tensor::from(context, {part.size(), 1}, heights)};
    return batch;
  }

 private:
  RandomKey key_;
};

int main(int argc, char** argv) try {
  LaunchOptions ranks;
  if (argc == 3 && std::string(argv[1]) == "--ranks") ranks.threads = std::stoi(argv[2]);
  const Model model = make_model();

  launch(ranks, [&](Communicator& world) {
    Surface training(1), held_out(2);
    TrainerOptions options;
    options.learning_rate = {.decay = LrDecay::cosine, .lr = 5e-3, .warmup = 20, .steps = 300};
    options.micro_batch_size = 8;
    TrainingRun run(world, model, training, {.trainer = options});
    Trainer& trainer = run.trainer();
    trainer.set_evaluation(held_out, 4);
    trainer.run({.step = [](const StepRecord& s) {
      if (s.step % 50 == 0)
        fmt::print("step {:3}  loss {:.6f} ({:a})  norm {:a}\n", s.step, s.loss, s.loss, s.grad_norm);
    }});
    const double loss = trainer.evaluate().loss;  // all ranks take part
    if (world.rank() == 0) fmt::print("held out  loss {:.6f} ({:a})\n", loss, loss);
  });
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "regression: {}\n", error.what());
  return 1;
}
