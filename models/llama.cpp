// LLaMA as an ordered list of blocks.
#include "models/llama.h"

#include <fmt/ranges.h>

#include <cmath>
#include <optional>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/swiglu.h"
#include "nn/layers.h"

namespace penstock {
namespace {

using ops::WeightLayout;

class LlamaEmbedding final : public Block {
 public:
  explicit LlamaEmbedding(const LlamaConfig& c)
      : Block("embedding"),
        positions_(c.positions),
        table_(scope("model.embed_tokens"), c.vocabulary, c.hidden, c.deviation) {}

  int layers() const override { return 0; }

  Variables forward(const Variables& in, const BlockContext& ctx) const override {
    require<ShapeError>(in.size() == 1 && in[0].shape().rank() == 2, "llama: token ids (B, T) wanted");
    require<ValueError>(in[0].shape()[1] <= positions_,
                        "llama: a sequence of {} tokens, but the model has {} positions", in[0].shape()[1],
                        positions_);
    return {table_(in[0], ctx)};  // (B, T, C)
  }

 private:
  Index positions_;
  Embedding table_;
};

class LlamaLayer final : public Block {
 public:
  LlamaLayer(const LlamaConfig& c, Index index)
      : Block(fmt::format("model.layers.{}", index)),
        attention_{.heads = c.heads, .kv_heads = c.kv_head_count(), .window = c.window},
        head_size_(c.head_width()),
        rope_(c.rope),
        dropout_(c.dropout),
        input_norm_(scope(name()) / "input_layernorm", c.hidden, c.rms_norm_eps),
        q_proj_(attention_scope() / "q_proj", c.hidden, c.heads * head_size_, c.deviation,
                WeightLayout::out_in, c.qkv_bias),
        k_proj_(attention_scope() / "k_proj", c.hidden, attention_.kv_heads * head_size_, c.deviation,
                WeightLayout::out_in, c.qkv_bias),
        v_proj_(attention_scope() / "v_proj", c.hidden, attention_.kv_heads * head_size_, c.deviation,
                WeightLayout::out_in, c.qkv_bias),
        o_proj_(attention_scope() / "o_proj", c.heads * head_size_, c.hidden, residual(c),
                WeightLayout::out_in, c.output_bias),
        q_norm_(head_norm("q_norm", c)),
        k_norm_(head_norm("k_norm", c)),
        ffn_norm_(scope(name()) / "post_attention_layernorm", c.hidden, c.rms_norm_eps),
        gate_proj_(scope(name()) / "mlp" / "gate_proj", c.hidden, c.ffn, c.deviation, WeightLayout::out_in,
                   c.ffn_bias),
        up_proj_(scope(name()) / "mlp" / "up_proj", c.hidden, c.ffn, c.deviation, WeightLayout::out_in,
                 c.ffn_bias),
        down_proj_(scope(name()) / "mlp" / "down_proj", c.ffn, c.hidden, residual(c), WeightLayout::out_in,
                   c.ffn_bias) {}

  Variables forward(const Variables& in, const BlockContext& ctx) const override {
    const auto [sum, normal] = ffn_norm_(
        in[0], ctx.dropout(attend(input_norm_(in[0], ctx), ctx), dropout_, name() + ".self_attn.dropout"),
        ctx);
    const Variable wide = ops::swiglu(gate_proj_(normal, ctx), up_proj_(normal, ctx));  // (B, T, ffn)
    return {ops::add(sum, ctx.dropout(down_proj_(wide, ctx), dropout_, name() + ".mlp.dropout"))};
  }

 private:
  static float residual(const LlamaConfig& c) {
    return c.deviation / std::sqrt(2.0f * static_cast<float>(c.layers));
  }
  ParameterScope attention_scope() { return scope(name()) / "self_attn"; }
  std::optional<RmsNorm> head_norm(const char* child, const LlamaConfig& c) {
    if (!c.qk_norm) return std::nullopt;
    return RmsNorm(attention_scope() / child, head_size_, c.rms_norm_eps);
  }

  /// x (B, T, C) -> (B, T, C)
  Variable attend(const Variable& x, const BlockContext& ctx) const {
    const Variables projected{q_proj_(x, ctx), k_proj_(x, ctx),
                              v_proj_(x, ctx)};  // (B, T, heads or kv_heads D)
    return ctx.part(Recompute::attention, projected, [this](const Variables& v, const BlockContext& c) {
      const Variable q = turned(v[0], q_norm_, c), k = turned(v[1], k_norm_, c);
      return Variables{o_proj_(ops::attention(q, k, v[2], attention_, Variable(c.segment_ids)).out, c)};
    })[0];
  }
  Variable turned(const Variable& x, const std::optional<RmsNorm>& norm, const BlockContext& ctx) const {
    return ops::rope(norm ? norm->of_heads(x, ctx) : x, Variable(ctx.positions), head_size_, rope_);
  }

  ops::AttentionOptions attention_;
  Index head_size_;
  ops::RopeOptions rope_;
  float dropout_;
  RmsNorm input_norm_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  RmsNorm ffn_norm_;
  Linear gate_proj_, up_proj_, down_proj_;
};

class LlamaHead final : public Block {
 public:
  explicit LlamaHead(const LlamaConfig& c)
      : Block("head"),
        norm_(scope("model.norm"), c.hidden, c.rms_norm_eps),
        weight_(scope(c.tied_embeddings ? "model.embed_tokens" : "lm_head")
                    .declare("weight", Shape{c.vocabulary, c.hidden}, Initializer::normal(c.deviation))) {}

  int layers() const override { return 0; }

  Variables forward(const Variables& in, const BlockContext& ctx) const override {
    return {ops::linear(norm_(in[0], ctx), ctx.weight(weight_), {}, WeightLayout::out_in)};  // (B, T, V)
  }

 private:
  RmsNorm norm_;
  const Parameter& weight_;
};

}  // namespace

const std::vector<std::string>& llama_preset_names() {
  static const std::vector<std::string> names{"llama-tiny"};
  return names;
}

LlamaConfig llama_preset(const std::string& name) {
  require<ValueError>(name == "llama-tiny", "model '{}' is none of {}", name,
                      fmt::join(llama_preset_names(), ", "));
  LlamaConfig config;
  config.kv_heads = 2;
  return config;
}

Model make_llama(const std::string& name, const LlamaConfig& c) {
  const auto positive = [&](const char* what, Index value) {
    require<ValueError>(value >= 1, "model {}: {} is {}, at least 1 wanted", name, what, value);
  };
  positive("layers", c.layers);
  positive("hidden", c.hidden);
  positive("heads", c.heads);
  positive("key/value heads", c.kv_head_count());
  positive("ffn", c.ffn);
  positive("vocabulary", c.vocabulary);
  positive("positions", c.positions);
  require<ValueError>(c.dropout >= 0 && c.dropout < 1, "model {}: dropout {} is not in [0, 1)", name,
                      c.dropout);
  require<ValueError>(c.window >= 0, "model {}: a window of {}; 0 is none", name, c.window);
  require<ValueError>(c.head_size > 0 || (c.head_size == 0 && c.hidden % c.heads == 0),
                      "model {}: hidden {} does not divide into {} heads, and the head size is {}", name,
                      c.hidden, c.heads, c.head_size);
  require<ValueError>(c.heads % c.kv_head_count() == 0, "model {}: {} heads over {} key/value heads", name,
                      c.heads, c.kv_head_count());
  ops::rope_frequencies(c.head_width(), c.rope);  // throws for what it cannot turn
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<LlamaEmbedding>(c));
  for (Index i = 0; i < c.layers; ++i) blocks.push_back(std::make_unique<LlamaLayer>(c, i));
  blocks.push_back(std::make_unique<LlamaHead>(c));
  return Model(name, std::move(blocks), [](const Variables& outputs, const Tensors& targets) {
    return ops::cross_entropy_sum(outputs[0], Variable(targets[0]));
  });
}

}  // namespace penstock
