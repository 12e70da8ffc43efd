// Checkpoints: a resumed run has the bits of one that never stopped, in any layout; what is damaged is named;
// what fails leaves the older one alone.
#include <span>

#include "core/hash.h"
#include "parallel/checkpoint/checkpoint.h"

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/safetensors.h"
#include "parallel/checkpoint/dump.h"
#include "parallel/runtime/run_trainer.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

/// Ten steps of a GPT-2 with dropout, warm-up that ends after the break, shuffled windows over several
/// epochs.
LoopRun ten_steps(const Model& model, Index pp) {
  LoopRun run;
  run.model = &model;
  run.source = token_source(5, 6, 13, std::nullopt, 70);
  run.pp = pp;
  run.micro_batches = 3;
  run.micro_batch = 2;
  run.options.learning_rate = {
      .decay = LrDecay::cosine, .lr = 0.01, .min_lr = 0.001, .warmup = 7, .steps = 10};
  run.options.seed = 11;
  return run;
}

TEST(Resume, HasTheBitsOfAnUninterruptedRunInAnyLayout) {
  for (const bool tied : {true, false}) {
    const Model model = make_gpt2("small", small_gpt2(0.1f, tied));
    const LoopOutcome whole = run_loop(ten_steps(model, 1));
    ASSERT_EQ(whole.steps.size(), 10u);
    TempFolder folder;
    std::vector<StepRecord> steps;
    LoopOutcome last;
    // 1 rank to step 4, 2 ranks to step 6, 4 ranks to the end.
    for (const auto& [pp, stop_after] : {std::pair<Index, Index>{1, 4}, {2, 2}, {4, 0}}) {
      LoopRun run = ten_steps(model, pp);
      run.options.checkpoint_directory = folder / "run";
      run.resume = pp > 1;
      run.stop_after = stop_after;
      last = run_loop(run);
      steps.insert(steps.end(), last.steps.begin(), last.steps.end());
    }
    ASSERT_EQ(steps.size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(steps[i].step, static_cast<Index>(i) + 1);
      EXPECT_EQ(steps[i].loss, whole.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(steps[i].grad_norm, whole.steps[i].grad_norm) << "step " << i + 1;
      EXPECT_EQ(steps[i].lr, whole.steps[i].lr);
    }
    EXPECT_TRUE(same_bits(whole.weights, last.weights, "weights"));
    EXPECT_TRUE(same_bits(whole.moments, last.moments, "moments"));
    EXPECT_EQ(last.updates, 10);
    EXPECT_EQ(list_checkpoints(folder / "run"), (std::vector<Index>{6, 10}));  // keep 2
  }
}

TEST(Resume, SgdWithMomentumToo) {
  const Model model = make_gpt2("small", small_gpt2(0.1f));
  LoopRun run = ten_steps(model, 2);
  run.optimizer = [] { return std::make_unique<Sgd>(kernels::SgdSettings{0.9, 0.1}); };
  const LoopOutcome whole = run_loop(run);
  TempFolder folder;
  run.options.checkpoint_directory = folder.path();
  run.stop_after = 5;
  run_loop(run);
  run.resume = true;
  run.stop_after = 0;
  const LoopOutcome rest = run_loop(run);
  EXPECT_EQ(rest.steps.size(), 5u);
  EXPECT_TRUE(same_bits(whole.weights, rest.weights, "weights"));
  EXPECT_TRUE(same_bits(whole.moments, rest.moments, "moments"));
}

TEST(Resume, WithNothingLeftToDoChangesNothing) {
  const Model model = make_gpt2("small", small_gpt2());
  TempFolder folder;
  LoopRun run = ten_steps(model, 2);
  run.options.learning_rate.steps = 2;
  run.options.checkpoint_directory = folder.path();
  const LoopOutcome first = run_loop(run);
  run.resume = true;
  const LoopOutcome second = run_loop(run);
  EXPECT_TRUE(second.steps.empty());
  EXPECT_TRUE(second.checkpoints.empty());
  EXPECT_TRUE(same_bits(first.weights, second.weights, "weights"));
}

TEST(Checkpoints, SaveEveryAndKeep) {
  const Model model = make_gpt2("small", small_gpt2());
  for (const auto& [keep, left] :
       {std::pair<Index, std::vector<Index>>{2, {6, 7}}, {1, {7}}, {0, {2, 4, 6, 7}}}) {
    TempFolder folder;
    folder.put("notes.txt", "mine");
    folder.put("step-00000001/other", "no checkpoint: it has no manifest");
    LoopRun run = ten_steps(model, 2);
    run.options.learning_rate.steps = 7;
    run.options.checkpoint_directory = folder.path();
    run.options.save_every = 2;
    run.options.keep = keep;
    const LoopOutcome outcome = run_loop(run);
    EXPECT_EQ(list_checkpoints(folder.path()), left);
    std::vector<Index> saved;
    for (const CheckpointRecord& r : outcome.checkpoints) saved.push_back(r.step);
    EXPECT_EQ(saved, (std::vector<Index>{2, 4, 6, 7}));
    EXPECT_EQ(outcome.checkpoints[0].path.filename(), "step-00000002");
    EXPECT_TRUE(fs::exists(folder / "notes.txt"));
    EXPECT_TRUE(fs::exists(folder / "step-00000001/other"));
  }
}

TEST(Checkpoints, UnfinishedSavesAreClearedAndNothingElse) {
  TempFolder folder;
  for (const char* name :
       {"step-00000003.tmp/weights", "agreement-0123abcd.tmp", "step-00000003/manifest.json", "step-3.tmp/x",
        "other.tmp/x", "step-00000004.temp/x"})
    folder.put(name, "x");
  clear_unfinished(folder.path());
  std::vector<std::string> names = folder.names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names,
            (std::vector<std::string>{"other.tmp", "step-00000003", "step-00000004.temp", "step-3.tmp"}));
  clear_unfinished(folder / "not there");
  EXPECT_EQ(list_checkpoints(folder.path()), (std::vector<Index>{3}));
  EXPECT_TRUE(list_checkpoints(folder / "not there").empty());
  EXPECT_EQ(checkpoint_name(12), "step-00000012");
  EXPECT_EQ(checkpoint_name(123456789), "step-123456789");
}

/// A checkpoint of two ranks at step 2, made once.
class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    LoopRun run = ten_steps(model_, 2);
    run.options.learning_rate.steps = 2;
    run.options.checkpoint_directory = folder_.path();
    run.options.checkpoint_info.tokenizer = "byte";
    run_loop(run);
    ASSERT_EQ(Checkpoint::open(folder_.path()).info().step, 2);
  }

  std::string manifest() const { return read_file(step_ / "manifest.json"); }
  void change(const std::function<void(nlohmann::json&)>& edit) const {
    nlohmann::json json = nlohmann::json::parse(manifest());
    edit(json);
    json.erase("hash");  // and it agrees with itself again
    const std::string text = json.dump();
    Hasher hasher;
    hasher.add(std::as_bytes(std::span(text)));
    json["hash"] = fmt::format("{:016x}", hasher.value());
    folder_.put("step-00000002/manifest.json", json.dump());
  }
  std::string words() const {
    return message_of<IoError>([&] { Checkpoint::open(folder_.path()); });
  }
  /// Words of loading everything.
  std::string words_of_loading() const {
    return message_of<IoError>([&] {
      const Checkpoint checkpoint = Checkpoint::open(folder_.path());
      RankContext context;
      const AdamW optimizer{kernels::AdamWSettings{}};
      WeightStore weights(context, model_, {0, 1, 2, 3, 4, 5}, {.optimizer_buffers = 2});
      checkpoint.load_weights(model_, weights);
      checkpoint.load_optimizer(model_, optimizer, weights);
    });
  }

  const Model model_ = make_gpt2("small", small_gpt2());
  const TempFolder folder_;
  const fs::path step_ = folder_ / "step-00000002";
};

TEST_F(Damaged, WholeOneOpensAndLoads) {
  EXPECT_EQ(words(), "");
  EXPECT_EQ(words_of_loading(), "");
  const Checkpoint checkpoint = Checkpoint::open(step_);
  EXPECT_EQ(checkpoint.info().updates, 2);
  EXPECT_EQ(checkpoint.info().seed, 11u);
  EXPECT_EQ(checkpoint.info().tokenizer, "byte");
  EXPECT_EQ(checkpoint.path(), step_);
}

TEST_F(Damaged, AMissingFile) {
  fs::remove(step_ / "optimizer-00001.safetensors");
  EXPECT_NE(words().find("optimizer-00001.safetensors is missing"), std::string::npos) << words();
}

TEST_F(Damaged, ATruncatedFile) {
  const fs::path file = step_ / "weights-00000.safetensors";
  fs::resize_file(file, fs::file_size(file) - 4);
  EXPECT_NE(words().find("weights-00000.safetensors has "), std::string::npos) << words();
  EXPECT_NE(words().find("the manifest says"), std::string::npos);
}

TEST_F(Damaged, AFlippedBit) {
  const fs::path file = step_ / "weights-00001.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  folder_.put("step-00000002/weights-00001.safetensors", bytes);
  EXPECT_NE(words().find("weights-00001.safetensors is damaged"), std::string::npos) << words();
}

TEST_F(Damaged, ANewerFormat) {
  change([](auto& m) { m["version"] = 99; });
  EXPECT_NE(words().find("format 99 by a newer Penstock"), std::string::npos) << words();
}

TEST_F(Damaged, SomethingElseThanACheckpoint) {
  change([](auto& m) { m["format"] = "other"; });
  EXPECT_NE(words().find("not a Penstock checkpoint"), std::string::npos);
  for (const char* text : {"", "{", "[]", "3", "{\"format\":\"penstock-checkpoint\"}", "\xff\xfe"}) {
    folder_.put("step-00000002/manifest.json", text);
    EXPECT_NE(words().find("manifest.json"), std::string::npos) << text << ": " << words();
  }
  fs::remove(step_ / "manifest.json");
  EXPECT_NE(words().find("no complete checkpoint"), std::string::npos);
  EXPECT_NE(message_of<IoError>([&] { Checkpoint::open(folder_ / "nowhere"); }).find("no such directory"),
            std::string::npos);
}

TEST_F(Damaged, FieldsOfTheWrongKind) {
  const std::string whole = manifest();
  for (const char* key : {"model", "optimizer", "data", "plan", "tokenizer", "seed", "step", "updates",
                          "files", "tensors", "version"}) {
    change([&](auto& m) { m.erase(key); });
    EXPECT_NE(words().find(key), std::string::npos) << key << ": " << words();
    folder_.put("step-00000002/manifest.json", whole);
  }
  for (const char* key : {"step", "updates", "seed", "tokenizer", "files", "tensors", "version"}) {
    change([&](auto& m) { m[key] = nlohmann::json::array({1}); });
    EXPECT_NE(words(), "") << key;
    folder_.put("step-00000002/manifest.json", whole);
  }
  change([](auto& m) { m["step"] = -2; });
  EXPECT_NE(words(), "");
}

TEST_F(Damaged, AnyChangeOfTheManifest) {
  const std::string whole = manifest();
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"step\": 2", "\"step\": 3"},
                                                        {"\"updates\": 2", "\"updates\": 1"},
                                                        {"offset", "offsex"},
                                                        {"\"shape\"", "\"shapf\""}}) {
    std::string text = whole;
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
    folder_.put("step-00000002/manifest.json", text);
    EXPECT_NE(words().find("manifest.json"), std::string::npos) << from << ": " << words();
  }
}

TEST_F(Damaged, AMissingTensor) {
  change([](auto& m) { m["tensors"].erase("transformer.h.2.ln_1.bias"); });
  EXPECT_NE(words_of_loading().find("no tensor transformer.h.2.ln_1.bias"), std::string::npos)
      << words_of_loading();
}

TEST_F(Damaged, ATensorInAFileThatHasNoneOrNoFile) {
  change([](auto& m) { m["tensors"]["transformer.h.2.ln_1.bias"]["file"] = "weights-00000.safetensors"; });
  EXPECT_NE(words_of_loading().find("transformer.h.2.ln_1.bias"), std::string::npos) << words_of_loading();
  change([](auto& m) { m["tensors"]["transformer.h.2.ln_1.bias"].erase("file"); });
  EXPECT_NE(words_of_loading().find("transformer.h.2.ln_1.bias"), std::string::npos) << words_of_loading();
}

TEST_F(Damaged, AnotherModel) {
  Gpt2Config wider = small_gpt2();
  wider.hidden = 32;
  const Model other = make_gpt2("small", wider);
  const Checkpoint checkpoint = Checkpoint::open(folder_.path());
  RankContext context;
  WeightStore weights(context, other, {0}, {});
  const std::string text = message_of<IoError>([&] { checkpoint.load_weights(other, weights); });
  EXPECT_NE(text.find("transformer.wte.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("wanted"), std::string::npos) << text;
}

/// AdamW whose state cannot be written, once told so.
class Unwritable final : public Optimizer {
 public:
  explicit Unwritable(const bool& fails) : fails_(fails) {}
  int buffers() const override { return 2; }
  std::vector<std::string> buffer_names() const override {
    require<IoError>(!fails_, "no space left");
    return adamw_.buffer_names();
  }
  void step(RankContext& context, WeightStore& weights, const StepState* state) override {
    adamw_.step(context, weights, state);
  }

 private:
  const bool& fails_;
  AdamW adamw_{kernels::AdamWSettings{}};
};

TEST(Checkpoints, AFailureOnOneRankIsOneOnAllAndLeavesTheOlderOne) {
  const Model model = make_gpt2("small", small_gpt2());
  TempFolder folder;
  std::vector<std::string> words(3);
  run_ranks(3, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    RankContext context;
    bool fails = false;
    Unwritable optimizer(fails);
    TrainingStep training({.context = &context,
                           .pipeline = &world,
                           .model = &model,
                           .plan = executable(named_plan("1f1b", 3, 2)),
                           .partition = even_partition(model, 3),
                           .optimizer = &optimizer});
    training.weights().initialize(1);
    CheckpointInfo info;
    info.step = 1;
    save_checkpoint(folder.path(), info, training, world);
    fails = rank == 1;
    for (const Index step : {2, 1}) {  // a new one, and the older one written again
      info.step = step;
      words[rank] = message_of<IoError>([&] { save_checkpoint(folder.path(), info, training, world); });
      EXPECT_EQ(words[rank], "rank 1: no space left");
    }
    // The group still works.
    fails = false;
    info.step = 3;
    save_checkpoint(folder.path(), info, training, world);
  });
  EXPECT_EQ(list_checkpoints(folder.path()), (std::vector<Index>{1, 3}));
  EXPECT_EQ(Checkpoint::open(folder / "step-00000001").info().step, 1);
  EXPECT_EQ(Checkpoint::open(folder.path()).info().step, 3);
  clear_unfinished(folder.path());
  EXPECT_EQ(folder.names().size(), 2u);
}

TEST(Dumps, HaveTheGradientsAndWeightsOfTheStep) {
  for (const bool tied : {true, false}) {
    const Model model = make_gpt2("small", small_gpt2(0.0f, tied));
    for (const Index pp : {1, 3}) {
      TempFolder folder;
      Values gradients, weights;
      std::mutex mutex;
      run_ranks(narrow<int>(pp), [&](Communicator& world) {
        RankContext context;
        AdamW optimizer{kernels::AdamWSettings{}};
        const auto source = token_source(4)();
        TrainingStep* step = nullptr;
        TrainingSetup setup{.context = &context,
                            .pipeline = &world,
                            .model = &model,
                            .plan = executable(named_plan("1f1b", pp, 4)),
                            .partition = even_partition(model, pp),
                            .optimizer = &optimizer};
        setup.on_gradients = [&](Index, const WeightStore& store) {
          dump_gradients(folder.path(), model, store, world, context,
                         [&](int block) { return step->rank_of_block(block); });
          const std::lock_guard lock(mutex);
          for (const ParameterRecord& p : model.parameters())
            if (store.holds(p.uses[0].block))
              gradients[p.name] = store.gradient_of(p.uses[0].block, p.uses[0].parameter).to_vector<float>();
        };
        TrainingStep training(setup);
        step = &training;
        training.weights().initialize(1);
        training.run(*source, 1, 0.01);
        dump_parameters(folder.path(), model, training.weights(), world.rank());
        const std::lock_guard lock(mutex);
        for (const ParameterRecord& p : model.parameters())
          for (const auto& use : p.uses)
            if (training.weights().holds(use.block))
              weights[p.name] = training.weights().value(use.block, use.parameter).to_vector<float>();
      });
      const auto values = [](const SafetensorsFile& file, const std::string& name) {
        const SafetensorsEntry& entry = file.at(name);
        std::vector<float> result(static_cast<std::size_t>(entry.bytes) / sizeof(float));
        std::memcpy(result.data(), entry.data, static_cast<std::size_t>(entry.bytes));
        return result;
      };
      const SafetensorsFile dumped(folder / "gradients.safetensors");
      EXPECT_EQ(dumped.entries().size(), model.parameters().size());
      for (const auto& [name, g] : gradients) EXPECT_EQ(values(dumped, name), g) << name;
      std::size_t found = 0;
      for (Index rank = 0; rank < pp; ++rank) {
        const SafetensorsFile part(folder / fmt::format("rank-{}.safetensors", rank));
        for (const SafetensorsEntry& entry : part.entries()) {
          EXPECT_EQ(values(part, entry.name), weights.at(entry.name)) << entry.name;
          const auto where = nlohmann::json::parse(part.metadata().at(entry.name));
          EXPECT_EQ(where.at("shape").get<std::vector<Index>>().size(),
                    static_cast<std::size_t>(entry.shape.rank()));
          EXPECT_EQ(where.at("offset").get<std::vector<Index>>(),
                    std::vector<Index>(static_cast<std::size_t>(entry.shape.rank()), 0));
          ++found;
        }
      }
      EXPECT_EQ(found, model.parameters().size() + (tied && pp > 1 ? 1 : 0));  // both copies of a tied table
    }
  }
}

}  // namespace
}  // namespace penstock::testing
