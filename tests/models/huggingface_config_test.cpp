// config.json of published models, key for key as their authors wrote them: sizes, options, and what is
// refused.
#include <gtest/gtest.h>

#include "models/huggingface/family.h"
#include "support/reference_files.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

using nlohmann::json;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ModelConfig read(const json& config) { return read_huggingface_config(config, "DIR/config.json"); }

std::string refusal(const json& config) {
  return message_of<ValueError>([&] { read(config); });
}

json with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

const json gpt2 = json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
  "resid_pdrop": 0.1, "summary_activation": null, "task_specific_params": {"text-generation": {"do_sample": true}},
  "vocab_size": 50257})");

// Llama-3.2-1B.
const json llama = json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
  "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})");

// Qwen2.5-0.5B.
const json qwen2 =
    json::parse(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896,
  "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "use_mrope": false,
  "use_sliding_window": false, "vocab_size": 151936})");

// Qwen3-0.6B.
const json qwen3 =
    json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
  "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})");

// Mistral-7B-v0.1.
const json mistral = json::parse(R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 32000})");

TEST(HuggingFaceConfig, PublishedModelsHaveTheirPublishedNumbersOfParameters) {
  EXPECT_EQ(read(gpt2).build().parameter_count(), 124'439'808);
  EXPECT_EQ(read(llama).build().parameter_count(), 1'235'814'400);
  EXPECT_EQ(read(qwen2).build().parameter_count(), 494'032'768);
  EXPECT_EQ(read(qwen3).build().parameter_count(), 596'049'920);
  EXPECT_EQ(read(mistral).build().parameter_count(), 7'241'732'096);
}

TEST(HuggingFaceConfig, Gpt2) {
  const ModelConfig config = read(gpt2);
  EXPECT_EQ(config.family, ModelFamily::gpt2);
  EXPECT_EQ(config.name, "gpt2");
  EXPECT_EQ(config.sequence_length(), 1024);
  EXPECT_EQ(config.ffn(), 3072);
  EXPECT_EQ(config.dropout(), 0.0f) << "a training's setting";
  EXPECT_TRUE(config.tied_embeddings()) << "transformers' default";
  EXPECT_EQ(read(with(gpt2, "n_inner", nullptr)).ffn(), 3072);
  EXPECT_EQ(read(with(gpt2, "n_inner", 100)).ffn(), 100);
  EXPECT_EQ(read(with(gpt2, "n_positions", 2048)).sequence_length(), 2048) << "n_ctx is its old name";
  EXPECT_EQ(read(with(without(gpt2, "n_positions"), "n_ctx", 77)).sequence_length(), 77);
  EXPECT_EQ(read(with(gpt2, "layer_norm_epsilon", 0.25)).gpt2.layer_norm_eps, 0.25f);
  EXPECT_EQ(read(without(gpt2, "layer_norm_epsilon")).gpt2.layer_norm_eps, 1e-5f);
  EXPECT_FALSE(read(with(gpt2, "tie_word_embeddings", false)).tied_embeddings());
  EXPECT_EQ(read(with(gpt2, "activation_function", "gelu_pytorch_tanh")).ffn(), 3072) << "the same function";
}

TEST(HuggingFaceConfig, Gpt2OptionsThatWouldChangeTheResultAreRefused) {
  const std::pair<const char*, json> options[] = {
      {"activation_function", "gelu"},
      {"activation_function", "relu"},
      {"activation_function", nullptr},
      {"scale_attn_weights", false},
      {"scale_attn_by_inverse_layer_idx", true},
      {"reorder_and_upcast_attn", true},
      {"add_cross_attention", true},
      {"is_encoder_decoder", true},
      {"pruned_heads", {{"0", {1}}}},
      {"quantization_config", {{"bits", 4}}},
      {"model_type", "gpt_neox"},
      {"architectures", json::array({"GPT2ForSequenceClassification"})},
      {"n_layer", 0},
      {"n_layer", 2.5},
      {"n_layer", "12"},
      {"n_layer", 1'000'000},
      {"n_embd", nullptr},
      {"n_embd", 100'000'000'000},
      {"n_head", 7},
      {"n_inner", -1},
      {"vocab_size", true},
      {"layer_norm_epsilon", 0},
      {"tie_word_embeddings", 1}};
  for (const auto& [key, value] : options) {
    const std::string message = refusal(with(gpt2, key, value));
    EXPECT_TRUE(contains(message, "DIR/config.json: ")) << key << value << message;
    EXPECT_TRUE(contains(message, std::string(key) == "n_head" ? "n_embd 768: does not divide into n_head 7"
                                                               : key + (" " + value.dump())))
        << message;
  }
  for (const char* key : {"n_layer", "n_embd", "n_head", "vocab_size", "model_type"})
    EXPECT_TRUE(contains(refusal(without(gpt2, key)), key + std::string(" is missing"))) << key;
  EXPECT_TRUE(contains(refusal(without(without(gpt2, "n_ctx"), "n_positions")), "n_positions is missing"));
  EXPECT_TRUE(contains(refusal(json::array()), "DIR/config.json: is no JSON object"));
}

TEST(HuggingFaceConfig, Llama) {
  const ModelConfig config = read(llama);
  const LlamaConfig& l = config.llama;
  EXPECT_EQ(config.family, ModelFamily::llama);
  EXPECT_EQ(config.name, "llama");
  EXPECT_EQ(l.rms_norm_eps, 1e-5f);
  EXPECT_EQ(l.head_width(), 64);
  EXPECT_EQ(l.kv_heads, 8);
  EXPECT_EQ(l.positions, 131072);
  EXPECT_EQ(l.window, 0);
  EXPECT_FALSE(l.qkv_bias || l.output_bias || l.ffn_bias || l.qk_norm);
  EXPECT_EQ(l.rope, (ops::RopeOptions{.theta = 5e5,
                                      .scaling = ops::RopeScaling::llama3,
                                      .factor = 32,
                                      .low_frequency = 1,
                                      .high_frequency = 4,
                                      .original_positions = 8192}));
  EXPECT_EQ(read(without(llama, "num_key_value_heads")).llama.kv_heads, 32);
  EXPECT_EQ(read(without(llama, "head_dim")).llama.head_width(), 64);
  EXPECT_EQ(read(with(llama, "head_dim", 128)).llama.head_width(), 128);
  EXPECT_EQ(read(without(llama, "rms_norm_eps")).llama.rms_norm_eps, 1e-6f);
  EXPECT_FALSE(read(without(llama, "tie_word_embeddings")).tied_embeddings()) << "transformers' default";
  const LlamaConfig biased = read(with(llama, "attention_bias", true)).llama;
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && !biased.ffn_bias);
  EXPECT_TRUE(read(with(llama, "mlp_bias", true)).llama.ffn_bias);
}

TEST(HuggingFaceConfig, RotaryPositionsInBothForms) {
  const json plain = without(without(llama, "rope_scaling"), "rope_theta");
  const auto rope = [](const json& config) { return read(config).llama.rope; };
  EXPECT_EQ(rope(plain), ops::RopeOptions{});
  EXPECT_EQ(rope(with(plain, "rope_theta", 500)), (ops::RopeOptions{.theta = 500}));
  const ops::RopeOptions linear{.theta = 20, .scaling = ops::RopeScaling::linear, .factor = 4};
  const json older = with(plain, "rope_theta", 20);
  EXPECT_EQ(rope(with(older, "rope_scaling", {{"type", "linear"}, {"factor", 4.0}})), linear);
  EXPECT_EQ(rope(with(older, "rope_scaling", {{"rope_type", "linear"}, {"type", "linear"}, {"factor", 4}})),
            linear);
  EXPECT_EQ(
      rope(with(plain, "rope_parameters", {{"rope_theta", 20}, {"rope_type", "linear"}, {"factor", 4}})),
      linear);
  EXPECT_EQ(rope(with(plain, "rope_parameters", {{"rope_theta", 7.5}, {"rope_type", "default"}})),
            (ops::RopeOptions{.theta = 7.5}));
  EXPECT_EQ(rope(with(plain, "rope_parameters", {{"rope_theta", 7.5}})), (ops::RopeOptions{.theta = 7.5}));
  const auto refused = [](const json& config, const std::string& words) {
    EXPECT_TRUE(contains(refusal(config), words)) << refusal(config);
  };
  refused(with(plain, "rope_scaling", {{"type", "yarn"}, {"factor", 4}}),
          "rope_scaling.type \"yarn\": this scaling");
  refused(with(plain, "rope_scaling", {{"type", "dynamic"}, {"factor", 4}}), "rope_scaling.type \"dynamic\"");
  refused(with(plain, "rope_scaling", {{"type", "linear"}}), "rope_scaling.factor is missing");
  refused(with(plain, "rope_scaling", {{"type", "linear"}, {"factor", -2}}), "rope_scaling.factor -2");
  refused(with(plain, "rope_scaling", "linear"), "rope_scaling \"linear\": an object is wanted");
  refused(with(plain, "rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}}),
          "rope_parameters.low_freq_factor is missing");
  refused(with(plain, "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
          "rope_parameters.partial_rotary_factor 0.5");
  refused(with(plain, "partial_rotary_factor", 0.5), "partial_rotary_factor 0.5");
  refused(with(with(plain, "rope_theta", 3), "rope_parameters", {{"rope_theta", 4}}),
          "rope_parameters.rope_theta 4: contradicts rope_theta 3");
  refused(with(llama, "rope_parameters", {{"rope_theta", 5e5}}), "rope_scaling {");
}

TEST(HuggingFaceConfig, LlamaOptionsThatWouldChangeTheResultAreRefused) {
  const std::pair<const char*, json> options[] = {
      {"hidden_act", "gelu"},
      {"sliding_window", 4096},
      {"rope_interleaved", true},
      {"attn_logit_softcapping", 50.0},
      {"final_logit_softcapping", 30.0},
      {"quantization_config", {{"quant_method", "awq"}}},
      {"architectures", json::array({"LlamaForSequenceClassification"})},
      {"num_key_value_heads", 5},
      {"num_key_value_heads", 64},
      {"rms_norm_eps", "small"},
      {"attention_bias", "no"},
      {"model_type", "mixtral"}};
  for (const auto& [key, value] : options) {
    const std::string message = refusal(with(llama, key, value));
    EXPECT_TRUE(contains(message, key + (" " + value.dump()))) << message;
  }
  EXPECT_TRUE(
      contains(refusal(with(without(llama, "head_dim"), "num_attention_heads", 24)), "hidden_size 2048"));
  EXPECT_TRUE(
      contains(message_of<Error>([] { read(with(llama, "head_dim", 63)).build(); }), "a head size of 63"));
}

TEST(HuggingFaceConfig, WindowsBiasesAndNormsOfTheOtherFamilies) {
  EXPECT_EQ(read(mistral).llama.window, 4096);
  EXPECT_EQ(read(with(mistral, "sliding_window", nullptr)).llama.window, 0);
  EXPECT_TRUE(contains(refusal(without(mistral, "sliding_window")), "sliding_window is missing"));
  EXPECT_TRUE(contains(refusal(without(mistral, "num_key_value_heads")), "num_key_value_heads is missing"));

  EXPECT_EQ(read(qwen2).llama.window, 0) << "use_sliding_window is false";
  const LlamaConfig l2 = read(qwen2).llama, l3 = read(qwen3).llama;
  EXPECT_TRUE(l2.qkv_bias && !l2.output_bias && !l2.ffn_bias && !l2.qk_norm);
  EXPECT_TRUE(l3.qk_norm && !l3.qkv_bias && !l3.output_bias);
  EXPECT_EQ(l3.head_width(), 128) << "apart from hidden / heads, which is 64";
  EXPECT_TRUE(contains(refusal(without(qwen3, "head_dim")), "head_dim is missing"));

  const json sliding = with(qwen2, "use_sliding_window", true);
  EXPECT_TRUE(contains(refusal(sliding), "max_window_layers 24"));
  EXPECT_EQ(read(with(sliding, "max_window_layers", 0)).llama.window, 32768);
  const json types = json::array({"full_attention", "sliding_attention"});
  const json two = with(with(sliding, "num_hidden_layers", 2), "sliding_window", 10);
  EXPECT_TRUE(contains(refusal(with(two, "layer_types", types)), "layer_types"));
  EXPECT_EQ(read(with(two, "layer_types", {types[1], types[1]})).llama.window, 10);
  EXPECT_EQ(read(with(two, "layer_types", {types[0], types[0]})).llama.window, 0);
  EXPECT_TRUE(contains(refusal(with(two, "layer_types", json::array({types[1]}))),
                       "one for each of num_hidden_layers 2"));
  EXPECT_TRUE(
      contains(refusal(with(with(llama, "num_hidden_layers", 2), "layer_types", types)), "layer_types"));
}

// The form that transformers 4 wrote; the newer one is read by the programs' test of the reference models.
TEST(HuggingFaceConfig, OfTheFixtures) {
  const auto of = [](const char* name) { return read(read_json(fixtures() / name / "hf" / "config.json")); };
  const LlamaConfig l = of("llama-tied-tiny").llama;
  EXPECT_EQ(l.layers, 3);
  EXPECT_EQ(l.hidden, 32);
  EXPECT_EQ(l.heads, 4);
  EXPECT_EQ(l.kv_heads, 1);
  EXPECT_EQ(l.ffn, 44);
  EXPECT_EQ(l.vocabulary, 96);
  EXPECT_EQ(l.rms_norm_eps, 1e-6f);
  EXPECT_EQ(l.rope, (ops::RopeOptions{.theta = 500}));
  EXPECT_TRUE(l.tied_embeddings);
  EXPECT_EQ(of("gpt2-tiny").build().parameter_count(), 128544);
  EXPECT_EQ(of("curve-20").gpt2.hidden, 64);
}

}  // namespace
}  // namespace penstock::testing
