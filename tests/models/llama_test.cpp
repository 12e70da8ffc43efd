// LLaMA as a definition: sizes, names, cost, and what its options do.
#include "models/llama.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/config.h"
#include "models/model_session.h"
#include "parallel/pipeline/plan/profile.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const ParameterRecord& p : model.parameters()) names.push_back(p.name);
  return names;
}

/// Everything that a Llama may have.
LlamaConfig everything() {
  return {.layers = 2,
          .hidden = 20,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 6,
          .ffn = 28,
          .vocabulary = 40,
          .positions = 64,
          .deviation = 0.3f,
          .qkv_bias = true,
          .output_bias = true,
          .ffn_bias = true,
          .qk_norm = true,
          .window = 5,
          .rope = {.theta = 100}};
}

TEST(LlamaPresets, TinyIsWhatItSays) {
  const Model model = make_llama("llama-tiny", llama_preset("llama-tiny"));
  // A layer has q and o of C x C, k and v of half that, three of C x F, two norms of C.
  const Index c = 128, f = 344;
  EXPECT_EQ(model.parameter_count(), 4 * (3 * c * c + 3 * c * f + 2 * c) + c + 2 * 256 * c);
  EXPECT_EQ(model.layers(), 4);
  EXPECT_EQ(llama_preset("llama-tiny").positions, 128);
  EXPECT_TRUE(contains(message_of<ValueError>([] { llama_preset("llama-9b"); }), "none of llama-tiny"));
}

// Meta's Llama-2-7B and Llama-3-8B, by their published sizes.
TEST(Llama, HasThePublishedNumbersOfParameters) {
  const auto count = [](LlamaConfig config) { return make_llama("x", config).parameter_count(); };
  EXPECT_EQ(count({.layers = 32, .hidden = 4096, .heads = 32, .ffn = 11008, .vocabulary = 32000}),
            6'738'415'616);
  EXPECT_EQ(
      count({.layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocabulary = 128256}),
      8'030'261'248);
}

TEST(Llama, BlocksAndNames) {
  LlamaConfig config{.layers = 2, .hidden = 8, .heads = 2, .ffn = 12, .vocabulary = 16, .positions = 4};
  const Model model = make_llama("two", config);
  EXPECT_EQ(model.size(), 4);
  EXPECT_EQ(model.block(0).layers(), 0);
  EXPECT_EQ(model.block(3).layers(), 0);
  const std::vector<std::string> names = names_of(model);
  const std::string layer = "model.layers.1.";
  ASSERT_EQ(names.size(), 1u + 2 * 9 + 2);
  EXPECT_EQ(names[0], "model.embed_tokens.weight");
  const std::vector<std::string> of_layer{"input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
                                          "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                                          "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  for (std::size_t i = 0; i < of_layer.size(); ++i) EXPECT_EQ(names[10 + i], layer + of_layer[i] + ".weight");
  EXPECT_EQ(names[19], "model.norm.weight");
  EXPECT_EQ(names[20], "lm_head.weight");
  EXPECT_EQ(model.parameters()[2].shape, (Shape{8, 8}));
  EXPECT_EQ(model.parameters()[7].shape, (Shape{12, 8})) << "projections are (out, in)";
  config.tied_embeddings = true;
  const Model tied = make_llama("tied", config);
  EXPECT_EQ(tied.parameters()[0].uses.size(), 2u);
  EXPECT_EQ(names_of(tied).back(), "model.norm.weight");
}

TEST(Llama, OptionsAddTheirParameters) {
  const Model model = make_llama("all", everything());
  const std::vector<std::string> names = names_of(model);
  const auto shape_of = [&](const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), "model.layers.0." + name);
    EXPECT_NE(at, names.end()) << name;
    return at == names.end() ? Shape{}
                             : model.parameters()[static_cast<std::size_t>(at - names.begin())].shape;
  };
  EXPECT_EQ(shape_of("self_attn.q_proj.weight"), (Shape{24, 20}));
  EXPECT_EQ(shape_of("self_attn.k_proj.weight"), (Shape{12, 20}));
  EXPECT_EQ(shape_of("self_attn.o_proj.weight"), (Shape{20, 24}));
  EXPECT_EQ(shape_of("self_attn.q_proj.bias"), (Shape{24}));
  EXPECT_EQ(shape_of("self_attn.k_proj.bias"), (Shape{12}));
  EXPECT_EQ(shape_of("self_attn.v_proj.bias"), (Shape{12}));
  EXPECT_EQ(shape_of("self_attn.o_proj.bias"), (Shape{20}));
  EXPECT_EQ(shape_of("self_attn.q_norm.weight"), (Shape{6}));
  EXPECT_EQ(shape_of("self_attn.k_norm.weight"), (Shape{6}));
  EXPECT_EQ(shape_of("mlp.down_proj.bias"), (Shape{20}));
  EXPECT_EQ(shape_of("mlp.gate_proj.bias"), (Shape{28}));
}

class SmallLlama : public ::testing::Test {
 protected:
  explicit SmallLlama(const LlamaConfig& config = everything()) : session(make_llama("test", config)) {
    session.store.initialize(9);
    session.state.set({.step = 3});
  }
  static ModelSession::Batch batch(Index sequences, Index length) {
    ModelSession::Batch b{.shape = Shape{sequences, length}};
    for (Index i = 0; i < sequences * length; ++i) {
      b.ids.push_back(static_cast<std::int32_t>((i * 7 + 3) % 40));
      b.targets.push_back(static_cast<std::int32_t>((i * 11 + 5) % 40));
      b.positions.push_back(static_cast<std::int32_t>(i % length));
    }
    return b;
  }
  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b,
                                   std::size_t begin, std::size_t end) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double d = std::abs(static_cast<double>(a.at(i)) - static_cast<double>(b.at(i)));
      most = d <= most ? most : d;  // keeps a NaN
    }
    return most;
  }

  ModelSession session;
};

TEST_F(SmallLlama, LaterTokensChangeNothingBefore) {
  const ModelSession::Batch first = batch(2, 8);
  ModelSession::Batch second = first;
  second.ids[8 + 5] = 39;
  const std::vector<float> a = session.logits(first), b = session.logits(second);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + (8 + 5) * 40, b.begin()));
  EXPECT_GT(largest_difference(a, b, (8 + 5) * 40, a.size()), 1e-3);
}

// Two layers that look back over 5 positions each reach 8 before their own.
TEST_F(SmallLlama, TheWindowEndsWhatIsSeen) {
  const ModelSession::Batch first = batch(1, 20);
  ModelSession::Batch second = first;
  second.ids[4] = 39;
  const std::vector<float> a = session.logits(first), b = session.logits(second);
  EXPECT_GT(largest_difference(a, b, 12 * 40, 13 * 40), 1e-4) << "position 12 sees 4";
  EXPECT_EQ(largest_difference(a, b, 13 * 40, 20 * 40), 0) << "position 13 does not";
}

// Rotary positions are relative: moving all of them changes nothing but roundings.
TEST_F(SmallLlama, OnlyDistancesOfPositionsCount) {
  const ModelSession::Batch first = batch(2, 9);
  ModelSession::Batch moved = first, stretched = first;
  for (std::int32_t& p : moved.positions) p += 1000;
  for (std::int32_t& p : stretched.positions) p *= 2;
  const std::vector<float> a = session.logits(first);
  EXPECT_LE(largest_difference(a, session.logits(moved), 0, a.size()), 2e-5);
  EXPECT_GT(largest_difference(a, session.logits(stretched), 0, a.size()), 1e-2);
}

TEST_F(SmallLlama, SegmentsAreSequencesOfTheirOwn) {
  ModelSession::Batch packed = batch(1, 10);
  packed.segments = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
  packed.positions = {0, 1, 2, 3, 0, 1, 2, 3, 4, 5};
  const std::vector<float> all = session.logits(packed);
  const ModelSession::Batch second{.shape = Shape{1, 6}, .ids = {packed.ids.begin() + 4, packed.ids.end()}};
  const std::vector<float> alone = session.logits(second), tail(all.begin() + 4 * 40, all.end());
  EXPECT_LE(largest_difference(alone, tail, 0, tail.size()), 1e-5);
}

// Every parameter has a gradient, and it is the slope of the loss: a step along it, by central differences.
TEST_F(SmallLlama, EveryGradientIsASlopeOfTheLoss) {
  const ModelSession::Batch b = batch(2, 9);
  // Initial biases and norms are 0 and 1: other values meet every term.
  for (const ParameterRecord& p : session.model.parameters()) {
    if (p.shape.rank() != 1) continue;
    const Tensor value = session.store.value(p.uses[0].block, p.uses[0].parameter);
    std::vector<float> values = value.to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.1f * static_cast<float>(i % 5) - 0.2f;
    Tensor(value).copy_from_host(values.data(), value.bytes());
  }
  session.backward(b);
  std::vector<std::vector<float>> gradients;
  for (const ParameterRecord& p : session.model.parameters())
    gradients.push_back(session.store.gradient_of(p.uses[0].block, p.uses[0].parameter).to_vector<float>());
  int checked = 0;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const ParameterRecord& p = session.model.parameters()[k];
    const Tensor value = session.store.value(p.uses[0].block, p.uses[0].parameter);
    const std::vector<float> original = value.to_vector<float>();
    double squares = 0;
    for (const float g : gradients[k]) squares += static_cast<double>(g) * static_cast<double>(g);
    const double norm = std::sqrt(squares), step = 0.004;
    const auto loss_at = [&](double distance) {
      std::vector<float> values = original;
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += static_cast<float>(distance * static_cast<double>(gradients[k][i]) / norm);
      Tensor(value).copy_from_host(values.data(), value.bytes());
      return session.backward(b).loss;
    };
    ASSERT_GT(norm, p.name.ends_with("k_proj.bias") ? 0.0 : 1e-3) << p.name;
    const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    Tensor(value).copy_from_host(original.data(), value.bytes());
    EXPECT_TRUE(std::abs(slope - norm) <= 0.01 * norm + 2e-4)
        << p.name << ": along its gradient the loss rises by " << slope << ", the gradient's norm is "
        << norm;
    ++checked;
  }
  EXPECT_EQ(checked, 1 + 2 * 18 + 2);
}

TEST_F(SmallLlama, RefusesWhatItCannotRead) {
  const ModelSession::Batch long_one = batch(1, 65);
  EXPECT_TRUE(contains(message_of<ValueError>([&] { session.logits(long_one); }),
                       "a sequence of 65 tokens, but the model has 64 positions"));
}

TEST(Llama, RefusesSizesThatDoNotFit) {
  const auto refusal = [](const LlamaConfig& config) {
    return message_of<ValueError>([&] { make_llama("x", config); });
  };
  EXPECT_TRUE(contains(refusal({.layers = 0}), "layers is 0, at least 1 wanted"));
  EXPECT_TRUE(contains(refusal({.heads = 0}), "heads is 0"));
  EXPECT_TRUE(contains(refusal({.kv_heads = 3}), "4 heads over 3 key/value heads"));
  EXPECT_TRUE(contains(refusal({.hidden = 130}), "hidden 130 does not divide into 4 heads"));
  EXPECT_TRUE(contains(refusal({.hidden = 12}), "a head size of 3"));
  EXPECT_TRUE(contains(refusal({.head_size = -1}), "the head size is -1"));
  EXPECT_TRUE(contains(refusal({.ffn = 0}), "ffn is 0"));
  EXPECT_TRUE(contains(refusal({.dropout = 1.0f}), "dropout 1 is not in [0, 1)"));
  EXPECT_TRUE(contains(refusal({.window = -1}), "a window of -1"));
  EXPECT_TRUE(contains(refusal({.rope = {.theta = -1}}), "theta -1"));
}

TEST(LlamaModelConfig, OverridesReplaceThePreset) {
  const ModelConfig config = configure_model("llama-tiny", {.layers = 2,
                                                            .hidden = 64,
                                                            .heads = 8,
                                                            .kv_heads = 4,
                                                            .ffn = 100,
                                                            .vocabulary = 300,
                                                            .sequence_length = 32,
                                                            .dropout = 0.25,
                                                            .tied_embeddings = true});
  EXPECT_EQ(config.layers(), 2);
  EXPECT_EQ(config.hidden(), 64);
  EXPECT_EQ(config.heads(), 8);
  EXPECT_EQ(config.kv_heads(), 4);
  EXPECT_EQ(config.ffn(), 100);
  EXPECT_EQ(config.vocabulary(), 300);
  EXPECT_EQ(config.sequence_length(), 32);
  EXPECT_EQ(config.dropout(), 0.25f);
  EXPECT_TRUE(config.tied_embeddings());
  EXPECT_EQ(config.build().parameter_count(), 2 * (3 * 64 * 64 + 3 * 64 * 100 + 2 * 64) + 64 + 300 * 64);
  EXPECT_EQ(configure_model("llama-tiny", {}).kv_heads(), 2);
}

TEST(LlamaModelConfig, SurvivesJson) {
  ModelConfig config = configure_model("llama-tiny", {.layers = 3});
  config.llama = everything();
  config.llama.tied_embeddings = true;
  for (const auto scaling : {ops::RopeScaling::none, ops::RopeScaling::linear, ops::RopeScaling::llama3}) {
    config.llama.rope = {.theta = 5e5, .scaling = scaling};
    if (scaling != ops::RopeScaling::none) config.llama.rope.factor = 3;
    if (scaling == ops::RopeScaling::llama3) config.llama.rope.original_positions = 77;
    const ModelConfig back = ModelConfig::from_json(nlohmann::json::parse(config.to_json().dump()), "file");
    EXPECT_EQ(back.to_json(), config.to_json());
    EXPECT_EQ(back.family, ModelFamily::llama);
    EXPECT_EQ(back.llama.rope, config.llama.rope);
    EXPECT_EQ(back.llama.window, 5);
    EXPECT_EQ(back.llama.head_size, 6);
    EXPECT_EQ(back.build().parameter_count(), config.build().parameter_count());
    EXPECT_EQ(names_of(back.build()), names_of(config.build()));
  }
  nlohmann::json strange = config.to_json();
  strange["rope"]["scaling"] = "yarn";
  EXPECT_TRUE(contains(message_of<ValueError>([&] { ModelConfig::from_json(strange, "meta.json"); }),
                       "rope scaling 'yarn' is none of none, linear, llama3"));
}

TEST(LlamaModelConfig, RefusesWithTheNameOfTheFlag) {
  const auto refusal = [](const ModelOverrides& overrides) {
    return message_of<ValueError>([&] { configure_model("llama-tiny", overrides); });
  };
  EXPECT_TRUE(contains(refusal({.kv_heads = 3}), "--kv-heads 3: does not divide --heads 4"));
  EXPECT_TRUE(contains(refusal({.hidden = 130}), "--hidden 130: does not divide into --heads 4"));
  EXPECT_TRUE(contains(refusal({.hidden = 12}), "--hidden 12: gives heads of 3"));
  EXPECT_TRUE(contains(refusal({.heads = 0}), "--heads 0"));
}

}  // namespace
}  // namespace penstock::testing
