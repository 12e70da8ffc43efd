// The families against PyTorch: logits, losses, every gradient and AdamW steps, within the limits that the
// reference states (measured there against float64 and between two fp32 programs). The fixture of gpt2-tiny
// has one in five elements of gradients and updated weights, that of llama-tied-tiny all; where
// PENSTOCK_REFERENCE_DIR has the whole set, the same tests run on all of them too, and on llama-tiny.
#include <gtest/gtest.h>

#include <limits>

#include "models/huggingface/directory.h"
#include "models/model_session.h"
#include "parallel/pipeline/runtime/training_step.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"

namespace penstock::testing {
namespace {

constexpr kernels::AdamWSettings adamw_of_the_reference{
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr double rate = 1e-3;

/// A reference model and where its numbers are.
struct Reference {
  std::string test_name;
  std::filesystem::path folder;
};

/// How a test's name shows it.
void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.test_name; }

class ModelReference : public ::testing::TestWithParam<Reference> {
 protected:
  ModelReference()
      : folder_(GetParam().folder),
        expected_(folder_ / "expected.safetensors"),
        numbers_(read_json(folder_ / "expected.json")),
        weights_(HuggingFaceDirectory::open(folder_ / "hf")),
        session_(weights_.config().build(), 2) {
    load(session_.store);
  }

  void load(WeightStore& store) const { weights_.load_weights(session_.model, store); }
  std::size_t sampled_elements() const {
    return static_cast<std::size_t>(session_.model.parameter_count()) / stride();
  }

  double number(const char* group, const char* key) const { return numbers_.at(group).at(key).get<double>(); }
  std::size_t stride() const { return numbers_.value("stride", std::size_t{1}); }

  /// Calls compare(actual, expected, parameter, index of the element) for the elements that the file has of
  /// every parameter.
  template <class View, class Compare>
  void for_each_element(const WeightStore& store, const std::string& prefix, View&& view,
                        Compare&& compare) const {
    std::size_t elements = 0, parameters = 0;
    for (const ParameterRecord& p : session_.model.parameters()) {
      const std::vector<float> actual = view(store, p).template to_vector<float>();
      const std::vector<float> wanted = values_of<float>(expected_.at(prefix + p.name));
      ASSERT_EQ(wanted.size(), (actual.size() + stride() - 1) / stride()) << p.name;
      for (std::size_t k = 0; k < wanted.size(); ++k, ++elements)
        compare(static_cast<double>(actual[k * stride()]), static_cast<double>(wanted[k]), p, k * stride(),
                k);
      ++parameters;
    }
    EXPECT_EQ(parameters, numbers_.at("parameters").size());
    EXPECT_GE(elements, sampled_elements());
  }
  static Tensor gradient_of(const WeightStore& store, const ParameterRecord& p) {
    return store.gradient_of(p.uses[0].block, p.uses[0].parameter);
  }
  static Tensor value_of(const WeightStore& store, const ParameterRecord& p) {
    return store.value(p.uses[0].block, p.uses[0].parameter);
  }

  void expect_gradients(const WeightStore& store) const {
    const ParameterRecord* last = nullptr;
    double largest = 0;
    for_each_element(
        store, "grad.", gradient_of,
        [&](double actual, double wanted, const ParameterRecord& p, std::size_t element, std::size_t) {
          if (last != &p) largest = numbers_.at("parameters").at(p.name).at("grad_max_abs").get<double>();
          last = &p;
          if (!(std::abs(actual - wanted) <= 3e-5 * largest))
            ADD_FAILURE() << "gradient of " << p.name << "[" << element << "] is " << actual << ", PyTorch's "
                          << wanted << ", largest " << largest;
        });
    // All elements, also those that a fixture leaves out, by the norm of each gradient.
    for (const ParameterRecord& p : session_.model.parameters()) {
      double squares = 0;
      for (const float g : gradient_of(store, p).to_vector<float>())
        squares += static_cast<double>(g) * static_cast<double>(g);
      const double wanted = numbers_.at("parameters").at(p.name).at("grad_norm").get<double>();
      EXPECT_TRUE(std::abs(std::sqrt(squares) - wanted) <= 3e-5 * wanted)
          << p.name << ": " << std::sqrt(squares) << ", " << wanted;
    }
  }

  void expect_weights(const WeightStore& store, int steps) const {
    const double scale = std::min(1.0, 1.0 / (number("targets", "grad_norm") + 1e-6));
    std::vector<float> gradient;
    const ParameterRecord* last = nullptr;
    std::size_t firm = 0;
    for_each_element(
        store, "after_" + std::to_string(steps) + ".", value_of,
        [&](double actual, double wanted, const ParameterRecord& p, std::size_t element, std::size_t place) {
          if (last != &p) gradient = values_of<float>(expected_.at("grad." + p.name));
          last = &p;
          const auto hidden = static_cast<std::size_t>(p.shape[0] / 3);
          if (p.name.ends_with("attn.c_attn.bias") && element >= hidden && element < 2 * hidden)
            return;  // undetermined
          const bool is_firm = std::abs(static_cast<double>(gradient[place])) * scale >= 1e-5;
          firm += is_firm ? 1 : 0;
          const double allowed = is_firm ? 5e-6 : 2 * rate * steps;
          if (!(std::abs(actual - wanted) <= allowed))
            ADD_FAILURE() << p.name << "[" << element << "] is " << actual << " after " << steps
                          << " steps, PyTorch's " << wanted;
        });
    EXPECT_GE(firm, sampled_elements() * 9 / 10) << "nearly all weights are compared closely";
  }

  std::filesystem::path folder_;
  SafetensorsFile expected_;
  nlohmann::json numbers_;
  HuggingFaceDirectory weights_;
  ModelSession session_;
};

TEST_P(ModelReference, Logits) {
  const ModelSession::Batch batch = reference_batch(expected_, "targets");
  const std::vector<float> wanted = values_of<float>(expected_.at("logits"));
  const double allowed = 10 * (number("fp32_error", "logits") + number("second_fp32_program", "logits"));
  ASSERT_LT(allowed, 1e-3);
  const std::vector<float> actual = session_.logits(batch);
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_TRUE(std::abs(static_cast<double>(actual[i]) - static_cast<double>(wanted[i])) <= allowed)
        << "logit " << i << " is " << actual[i] << ", PyTorch's " << wanted[i];
}

TEST_P(ModelReference, LossNormAndEveryGradient) {
  const ModelSession::Result result = session_.backward(reference_batch(expected_, "targets"));
  EXPECT_TRUE(std::abs(result.loss - number("targets", "loss_float64")) <= 1e-5) << result.loss;
  EXPECT_TRUE(std::abs(result.norm / number("targets", "grad_norm_float64") - 1) <= 3e-5) << result.norm;
  expect_gradients(session_.store);
}

TEST_P(ModelReference, IgnoredTargetsCountNeitherInTheLossNorInItsDivisor) {
  const ModelSession::Result result = session_.backward(reference_batch(expected_, "targets_masked"));
  EXPECT_TRUE(std::abs(result.loss - number("targets_masked", "loss_float64")) <= 1e-5) << result.loss;
  EXPECT_TRUE(std::abs(result.norm / number("targets_masked", "grad_norm_float64") - 1) <= 3e-5)
      << result.norm;
  for (const ParameterRecord& p : session_.model.parameters()) {
    double squares = 0;
    for (const float g : gradient_of(session_.store, p).to_vector<float>())
      squares += static_cast<double>(g) * static_cast<double>(g);
    const double wanted = numbers_.at("parameters").at(p.name).at("grad_norm_masked_targets").get<double>();
    EXPECT_TRUE(std::abs(std::sqrt(squares) - wanted) <= 3e-5 * wanted) << p.name;
  }
}

TEST_P(ModelReference, FiveStepsOfAdamW) {
  const ModelSession::Batch batch = reference_batch(expected_, "targets");
  AdamW adamw(adamw_of_the_reference);
  for (int step = 1; step <= 5; ++step) {
    const ModelSession::Result result = session_.backward(batch);
    const nlohmann::json& wanted = numbers_.at("steps").at(static_cast<std::size_t>(step - 1));
    EXPECT_TRUE(std::abs(result.loss - wanted.at("loss_float64").get<double>()) <= 1e-5)
        << "step " << step << ": " << result.loss;
    EXPECT_TRUE(std::abs(result.norm / wanted.at("grad_norm_float64").get<double>() - 1) <= 3e-5)
        << "step " << step;
    session_.state.set({.step = step,
                        .updates = step,
                        .clip_factor = static_cast<float>(std::min(1.0, 1.0 / (result.norm + 1e-6))),
                        .learning_rate = static_cast<float>(rate)});
    adamw.step(session_.context, session_.store, session_.state.get());
    if (step == 1 || step == 5) expect_weights(session_.store, step);
  }
}

TEST_P(ModelReference, GreedyTokens) {
  const nlohmann::json& greedy = numbers_.at("greedy");
  ModelSession::Batch batch;
  batch.ids = greedy.at("prompt_ids").get<std::vector<std::int32_t>>();
  for (const std::int32_t wanted : greedy.at("ids").get<std::vector<std::int32_t>>()) {
    batch.shape = Shape{1, static_cast<Index>(batch.ids.size())};
    const std::vector<float> logits = session_.logits(batch);
    const auto last = logits.end() - static_cast<std::ptrdiff_t>(logits.size()) / batch.shape[1];
    ASSERT_EQ(std::max_element(last, logits.end()) - last, wanted) << "at position " << batch.ids.size();
    batch.ids.push_back(wanted);
  }
}

/// The reference's batch at every step.
class SameBatch final : public BatchSource {
 public:
  explicit SameBatch(ModelSession::Batch batch) : batch_(std::move(batch)) {}
  Index batch(Index) override { return batch_.shape[0]; }
  Index tokens(Index) override { return batch_.shape.numel(); }
  Index valid_targets(Index) override {
    return std::count_if(batch_.targets.begin(), batch_.targets.end(), [](std::int32_t t) { return t >= 0; });
  }
  MicroBatch load(RankContext& context, Index, SequenceSpan sequences, bool, bool) override {
    MicroBatch micro = micro_batch_of(context, sequences, batch_.shape[1]);
    const Tensor ids = Tensor::from(context, batch_.shape, batch_.ids);
    const Tensor targets = Tensor::from(context, batch_.shape, batch_.targets);
    micro.inputs = {ids.slice(0, sequences.first, sequences.last)};
    micro.targets = {targets.slice(0, sequences.first, sequences.last)};
    return micro;
  }

 private:
  ModelSession::Batch batch_;
};

/// One rank that runs 1f1b with `micro_batches` of `size` sequences.
TrainingSetup one_rank(RankContext& context, Communicator& self, const Model& model, Optimizer& optimizer,
                       Index micro_batches, Index size) {
  TrainingSetup setup;
  setup.context = &context;
  setup.pipeline = &self;
  setup.model = &model;
  GenerateOptions options;
  options.micro_batches = micro_batches;
  setup.plan = add_optimizer(lower(generate("1f1b", options)));
  setup.partition = partition_by_layers(model, {model.layers()}, 1);
  setup.optimizer = &optimizer;
  setup.micro_batch_size = size;
  return setup;
}

TEST_P(ModelReference, FiveTrainingStepsOfOneRankWithOneAndTwoMicroBatches) {
  for (const Index micro_batches : {1, 2}) {
    SCOPED_TRACE(std::to_string(micro_batches) + " micro-batches");
    RankContext context({.poison = true});
    const std::unique_ptr<Communicator> self = ThreadGroup(1).communicator(0);
    AdamW adamw(adamw_of_the_reference);
    TrainingSetup setup = one_rank(context, *self, session_.model, adamw, micro_batches, 2 / micro_batches);
    int seen = 0;
    setup.on_gradients = [&](Index step, const WeightStore& store) {
      if (step == 1) expect_gradients(store);
      ++seen;
    };
    TrainingStep training(setup);
    load(training.weights());
    SameBatch source(reference_batch(expected_, "targets"));
    for (int step = 1; step <= 5; ++step) {
      const StepOutcome outcome = training.run(source, step, rate);
      const nlohmann::json& wanted = numbers_.at("steps").at(static_cast<std::size_t>(step - 1));
      EXPECT_FALSE(outcome.skipped);
      EXPECT_TRUE(std::abs(outcome.loss - wanted.at("loss_float64").get<double>()) <= 1e-5)
          << "step " << step;
      EXPECT_TRUE(std::abs(outcome.grad_norm / wanted.at("grad_norm_float64").get<double>() - 1) <= 3e-5)
          << "step " << step;
      if (step == 1 || step == 5) expect_weights(training.weights(), step);
    }
    EXPECT_EQ(seen, 5);
    EXPECT_EQ(training.updates(), 5);
  }
}

/// The fixtures, and what PENSTOCK_REFERENCE_DIR has beyond them; without it the second half repeats
/// fixtures, so that the same tests exist on every machine and none is skipped.
std::vector<Reference> references() {
  const std::filesystem::path llama_tiny = whole_reference("llama-tiny");
  return {{"Gpt2TinyFixture", fixtures() / "gpt2-tiny"},
          {"LlamaTiedTinyFixture", fixtures() / "llama-tied-tiny"},
          {"Gpt2TinyWholeElseFixture", whole_reference("gpt2-tiny")},
          {"LlamaTinyElseLlamaTiedTiny",
           std::filesystem::exists(llama_tiny) ? llama_tiny : fixtures() / "llama-tied-tiny"}};
}

INSTANTIATE_TEST_SUITE_P(, ModelReference, ::testing::ValuesIn(references()),
                         [](const auto& reference) { return reference.param.test_name; });

// Twenty steps on real text, each on its own batch, with micro-batches of 5, 5 and 2 sequences.
class Gpt2Curve : public ::testing::TestWithParam<DType> {};

TEST_P(Gpt2Curve, TwentyStepsOfTrainingFollowPyTorch) {
  const std::filesystem::path folder = fixtures() / "curve-20";
  const nlohmann::json numbers = read_json(folder / "expected.json");
  const MappedFile tokens(folder / "tokens.bin");
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i + 1 < tokens.bytes().size(); i += 2)
    ids.push_back(std::to_integer<std::int32_t>(tokens.bytes()[i]) +
                  256 * std::to_integer<std::int32_t>(tokens.bytes()[i + 1]));
  SamplerOptions options;
  options.sequence_length = 64;
  options.batch = 12;
  options.order = DataOrder::sequential;
  TokenBatches source(Sampler(TokenRow(ids), options));

  const HuggingFaceDirectory directory = HuggingFaceDirectory::open(folder / "hf");
  const Model model = directory.config().build();
  RankContext context({.threads = 2});
  const std::unique_ptr<Communicator> self = ThreadGroup(1).communicator(0);
  AdamW adamw(adamw_of_the_reference);
  TrainingSetup setup = one_rank(context, *self, model, adamw, 3, 5);
  setup.compute = GetParam();
  TrainingStep training(setup);
  // bf16 rounds every activation by up to 2^-8: the loss, a mean over 768 targets, stays within 2^-9 of
  // PyTorch's fp32 one, and a norm within a few times 2^-8.
  const bool narrow = GetParam() == DType::bf16;
  const double of_loss = narrow ? 0.002 * 5 : 1e-5, of_norm = narrow ? 0.02 : 3e-5;
  directory.load_weights(model, training.weights());
  const auto losses = numbers.at("loss_float64").get<std::vector<double>>();
  const auto norms = numbers.at("grad_norm_float64").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 20u);
  for (std::size_t s = 0; s < losses.size(); ++s) {
    const StepOutcome outcome = training.run(source, static_cast<Index>(s) + 1, rate);
    EXPECT_TRUE(std::abs(outcome.loss - losses[s]) <= of_loss)
        << "step " << s + 1 << ": " << outcome.loss << ", " << losses[s];
    EXPECT_TRUE(std::abs(outcome.grad_norm / norms[s] - 1) <= of_norm)
        << "step " << s + 1 << ": " << outcome.grad_norm << ", " << norms[s];
  }
}

INSTANTIATE_TEST_SUITE_P(, Gpt2Curve, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace
}  // namespace penstock::testing
