// Training with frozen parameters: whole stages of them, and the layouts agree.
#include "core/safetensors.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/dump.h"
#include "parallel/runtime/toy_model.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

Training gpt_training(const Model& model, const Plan& plan) {
  Training t = uneven_training(model, plan);
  t.optimizer = [] { return std::make_unique<AdamW>(kernels::AdamWSettings{.weight_decay = 0.1f}); };
  return t;
}

/// Frozen parameters stay as they were drawn; the others have the gradients of the model in which nothing is
/// frozen.
void expect_frozen(const Model& model, const Model& plain, const Training& t) {
  const Outcome some = train(t);
  Training all = t;
  all.model = &plain;
  all.steps = {1};
  all.rates = {0.0};
  const Outcome initial = train(all);  // a rate of 0: the initial weights (decay is scaled by the rate)
  for (const ParameterRecord& p : model.parameters()) {
    if (p.frozen) {
      EXPECT_EQ(some.weights.at(p.name), initial.weights.at(p.name)) << p.name;
      EXPECT_FALSE(some.first_gradients.contains(p.name)) << p.name;
    } else {
      EXPECT_NE(some.weights.at(p.name), initial.weights.at(p.name)) << p.name;
      EXPECT_EQ(some.first_gradients.at(p.name), initial.first_gradients.at(p.name)) << p.name;
    }
  }
}

Model gpt(const std::vector<std::string>& frozen, float dropout = 0.1f) {
  Model model = make_gpt2("small", small_gpt2(dropout, true));
  for (const std::string& pattern : frozen) model.freeze(pattern);
  return model;
}

const std::vector<std::string> split = {"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2",
                                        "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"};

TEST(Frozen, EveryLayoutGivesTheBitsOfOneRank) {
  const Model plain = gpt({});
  const std::vector<std::vector<std::string>> choices = {
      {"transformer.wte.*", "transformer.wpe.*",
       "transformer.h.0.*"},                     // the first stage of two or more, whole
      {"transformer.wpe.*", "transformer.h.*"},  // only ends learn
      {"*bias", "*ln_*"},
      {"*weight"},
      {"transformer.h.3.*", "transformer.ln_f.*"}};
  for (const auto& patterns : choices) {
    SCOPED_TRACE(patterns[0]);
    const Model model = gpt(patterns);
    const Training one = gpt_training(model, named_plan("gpipe", 1, 3));
    expect_frozen(model, plain, one);
    const Outcome reference = train(one);
    EXPECT_GT(reference.steps[0].grad_norm, 0);
    for (const char* schedule : {"gpipe", "1f1b"})
      for (Index pp = 2; pp <= 4; ++pp)
        EXPECT_TRUE(same_bits(reference, train(gpt_training(model, named_plan(schedule, pp, 3)))))
            << schedule << pp;
    EXPECT_TRUE(same_bits(reference, train(gpt_training(model, plan_of(split)))));
    Training again = gpt_training(model, named_plan("1f1b", 2, 3));
    again.recompute = {RecomputePolicy::Kind::full, 0};
    EXPECT_TRUE(same_bits(reference, train(again)));
  }
}

// Known fault 36: a stage without anything to learn behind an input that needs no gradient.
TEST(Frozen, WholeStagesAndWholeModels) {
  for (const char* pattern : {"begin*", "begin*|mix*", "*"}) {
    Model model = make_toy();
    for (std::string rest = pattern; !rest.empty();) {
      const std::size_t bar = rest.find('|');
      model.freeze(rest.substr(0, bar));
      rest = bar == std::string::npos ? "" : rest.substr(bar + 1);
    }
    const Outcome one = train(toy_training(model, named_plan("gpipe", 1, 3)));
    for (Index pp = 2; pp <= 5; ++pp)
      EXPECT_TRUE(same_bits(one, train(toy_training(model, named_plan("1f1b", pp, 3)))))
          << pattern << " pp " << pp;
    EXPECT_TRUE(same_bits(one, train(toy_training(model, plan_of(split))))) << pattern;
    EXPECT_EQ(one.steps[1].grad_norm == 0, std::string(pattern) == "*");
    EXPECT_FALSE(one.steps[1].skipped);
    Training t = toy_training(model, named_plan("1f1b", 2, 3));
    AdamW optimizer{kernels::AdamWSettings{}};
    const auto source = t.source();
    EXPECT_EQ(predict_peak_bytes({.model = &model,
                                  .plan = executable(t.plan),
                                  .partition = t.partition,
                                  .optimizer = &optimizer,
                                  .micro_batch_size = t.micro_batch},
                                 *source),
              train(t).peaks);
  }
}

TEST(Frozen, CheckpointsAndDumps) {
  const Model model = gpt({"transformer.wte.*", "transformer.h.2.*"});
  const TempFolder folder;
  const auto session = [&](const Model& of, const std::function<void(TrainingStep&, Communicator&)>& work) {
    const Plan plan = executable(named_plan("1f1b", 2, 3));
    run_ranks(2, [&](Communicator& world) {
      RankContext context({.poison = true});
      AdamW optimizer{kernels::AdamWSettings{}};
      TrainingStep training({.context = &context,
                             .pipeline = &world,
                             .model = &of,
                             .plan = plan,
                             .partition = even_partition(of, 2),
                             .optimizer = &optimizer,
                             .micro_batch_size = 2});
      work(training, world);
    });
  };
  session(model, [&](TrainingStep& training, Communicator& world) {
    training.weights().initialize(1);
    const auto source = token_source(5)();
    training.run(*source, 1, 0.1);
    CheckpointInfo info;
    info.step = 1;
    save_checkpoint(folder / "all", info, training, world);
    dump_gradients(folder / "dump", model, training.weights(), world, *training.setup().context,
                   [&](int block) { return training.rank_of_block(block); });
  });
  const Checkpoint checkpoint = Checkpoint::open(folder / "all");
  session(model, [&](TrainingStep& training,
                     Communicator&) {  // weights and moments come back, frozen values among them
    checkpoint.load_weights(model, training.weights());
    checkpoint.load_optimizer(model, *training.setup().optimizer, training.weights());
    RankContext context;
    WeightStore drawn(context, model, training.weights().blocks(), {});
    drawn.initialize(1);
    for (const ParameterRecord& p : model.parameters())
      for (const auto& use : p.uses)
        if (drawn.holds(use.block)) {
          EXPECT_EQ(training.weights().value(use.block, use.parameter).to_vector<float>() ==
                        drawn.value(use.block, use.parameter).to_vector<float>(),
                    p.frozen)
              << p.name;
        }
  });
  const Model plain = gpt({});
  session(plain, [&](TrainingStep& training, Communicator& world) {
    checkpoint.load_weights(plain, training.weights());
    const std::string message = message_of<IoError>(
        [&] { checkpoint.load_optimizer(plain, *training.setup().optimizer, training.weights()); });
    if (world.rank() == 0) {
      EXPECT_NE(message.find("no tensor transformer.wte.weight/exp_avg"), std::string::npos) << message;
    }
  });
  const SafetensorsFile gradients(folder / "dump" / "gradients.safetensors");
  for (const ParameterRecord& p : model.parameters())
    EXPECT_EQ(gradients.find(p.name) != nullptr, !p.frozen) << p.name;
}

TEST(Frozen, TakesLessMemory) {
  const Model plain = gpt({}, 0), frozen = gpt({"transformer.h.*"}, 0);
  Index layers = 0;
  for (const ParameterRecord& p : frozen.parameters())
    if (p.frozen) layers += p.shape.numel();
  const auto run = [](const Model& model) { return train(gpt_training(model, named_plan("gpipe", 1, 3))); };
  const Outcome all = run(plain), some = run(frozen);
  const auto difference = [&](MemoryKind kind) {
    return all.live_before[0][kind] - some.live_before[0][kind];
  };
  EXPECT_EQ(difference(MemoryKind::gradient), layers * 4);
  EXPECT_EQ(difference(MemoryKind::optimizer), layers * 8);
  EXPECT_EQ(difference(MemoryKind::parameter), 0);
  EXPECT_LT(some.peaks[0] - some.live_before[0].total(), (all.peaks[0] - all.live_before[0].total()) * 9 / 10)
      << "frozen products do not keep their inputs";
}

}  // namespace
}  // namespace penstock::testing
