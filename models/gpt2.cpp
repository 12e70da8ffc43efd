// GPT-2 as an ordered list of blocks.
#include "models/gpt2.h"

#include <fmt/ranges.h>

#include <cmath>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/gelu.h"
#include "nn/layers.h"

namespace penstock {
namespace {

class Gpt2Embedding final : public Block {
 public:
  explicit Gpt2Embedding(const Gpt2Config& c)
      : Block("embedding"),
        dropout_(c.dropout),
        positions_(c.positions),
        wte_(scope("transformer.wte"), c.vocabulary, c.hidden, c.deviation),
        wpe_(scope("transformer.wpe"), c.positions, c.hidden, c.deviation) {}

  int layers() const override { return 0; }

  Variables forward(const Variables& in, const BlockContext& ctx) const override {
    require<ShapeError>(in.size() == 1 && in[0].shape().rank() == 2, "gpt2: token ids (B, T) wanted");
    require<ValueError>(in[0].shape()[1] <= positions_,
                        "gpt2: a sequence of {} tokens, but the model has {} positions", in[0].shape()[1],
                        positions_);
    const Variable x = ops::add(wte_(in[0], ctx), wpe_(Variable(ctx.positions), ctx));  // (B, T, C)
    return {ctx.dropout(x, dropout_, "transformer.drop")};
  }

 private:
  float dropout_;
  Index positions_;
  Embedding wte_, wpe_;
};

class Gpt2Layer final : public Block {
 public:
  Gpt2Layer(const Gpt2Config& c, Index index)
      : Block(fmt::format("transformer.h.{}", index)),
        heads_(c.heads),
        dropout_(c.dropout),
        ln_1_(scope(name()) / "ln_1", c.hidden, c.layer_norm_eps),
        c_attn_(scope(name()) / "attn" / "c_attn", c.hidden, 3 * c.hidden, c.deviation),
        attn_proj_(scope(name()) / "attn" / "c_proj", c.hidden, c.hidden, residual(c)),
        ln_2_(scope(name()) / "ln_2", c.hidden, c.layer_norm_eps),
        c_fc_(scope(name()) / "mlp" / "c_fc", c.hidden, c.ffn_size(), c.deviation),
        mlp_proj_(scope(name()) / "mlp" / "c_proj", c.ffn_size(), c.hidden, residual(c)) {}

  Variables forward(const Variables& in, const BlockContext& ctx) const override {
    const Variable& x = in[0];                         // (B, T, C)
    const Variable qkv = c_attn_(ln_1_(x, ctx), ctx);  // (B, T, 3C)
    const Variable mixed =
        ctx.part(Recompute::attention, {qkv}, [this](const Variables& v, const BlockContext& c) {
          return Variables{attn_proj_(
              ops::self_attention(v[0], {.heads = heads_, .kv_heads = heads_}, Variable(c.segment_ids)), c)};
        })[0];
    const auto [sum, normal] = ln_2_(x, ctx.dropout(mixed, dropout_, name() + ".attn.resid_dropout"), ctx);
    const Variable wide = ops::gelu(c_fc_(normal, ctx));  // (B, T, 4C)
    return {ops::add(sum, ctx.dropout(mlp_proj_(wide, ctx), dropout_, name() + ".mlp.dropout"))};
  }

 private:
  static float residual(const Gpt2Config& c) {
    return c.deviation / std::sqrt(2.0f * static_cast<float>(c.layers));
  }

  Index heads_;
  float dropout_;
  LayerNorm ln_1_;
  Linear c_attn_, attn_proj_;
  LayerNorm ln_2_;
  Linear c_fc_, mlp_proj_;
};

class Gpt2Head final : public Block {
 public:
  explicit Gpt2Head(const Gpt2Config& c)
      : Block("head"),
        ln_f_(scope("transformer.ln_f"), c.hidden, c.layer_norm_eps),
        weight_(c.tied_embeddings
                    ? scope("transformer.wte")
                          .declare("weight", Shape{c.vocabulary, c.hidden}, Initializer::normal(c.deviation))
                    : scope("lm_head").declare("weight", Shape{c.vocabulary, c.hidden},
                                               Initializer::normal(c.deviation))) {}

  int layers() const override { return 0; }

  Variables forward(const Variables& in, const BlockContext& ctx) const override {
    return {ops::linear(ln_f_(in[0], ctx), ctx.weight(weight_), {}, ops::WeightLayout::out_in)};  // (B, T, V)
  }

 private:
  LayerNorm ln_f_;
  const Parameter& weight_;
};

/// GPT-2's sizes (Radford et al., 2019) and GPT-3's (Brown et al., 2020, table 2.1; all layers attend densely
/// here, and XL has 16 heads, as 24 do not divide its hidden size, and 13B the hidden size of 40 heads of
/// 128).
struct Preset {
  const char* name;
  Index layers, hidden, heads, positions;
};

constexpr Preset presets[] = {
    {"gpt2-tiny", 4, 128, 4, 128},       {"gpt2", 12, 768, 12, 1024},
    {"gpt2-medium", 24, 1024, 16, 1024}, {"gpt2-large", 36, 1280, 20, 1024},
    {"gpt2-xl", 48, 1600, 25, 1024},     {"gpt3-small", 12, 768, 12, 2048},
    {"gpt3-medium", 24, 1024, 16, 2048}, {"gpt3-large", 24, 1536, 16, 2048},
    {"gpt3-xl", 24, 2048, 16, 2048},     {"gpt3-2.7b", 32, 2560, 32, 2048},
    {"gpt3-6.7b", 32, 4096, 32, 2048},   {"gpt3-13b", 40, 5120, 40, 2048},
    {"gpt3-175b", 96, 12288, 96, 2048},
};

}  // namespace

const std::vector<std::string>& gpt2_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Preset& p : presets) all.emplace_back(p.name);
    return all;
  }();
  return names;
}

Gpt2Config gpt2_preset(const std::string& name) {
  for (const Preset& p : presets) {
    if (name != p.name) continue;
    Gpt2Config config;
    config.layers = p.layers;
    config.hidden = p.hidden;
    config.heads = p.heads;
    config.positions = p.positions;
    config.vocabulary = name == "gpt2-tiny" ? 256 : 50257;
    return config;
  }
  throw ValueError("model '{}' is none of {}", name, fmt::join(gpt2_preset_names(), ", "));
}

Model make_gpt2(const std::string& name, const Gpt2Config& c) {
  const auto positive = [&](const char* what, Index value) {
    require<ValueError>(value >= 1, "model {}: {} is {}, at least 1 wanted", name, what, value);
  };
  positive("layers", c.layers);
  positive("hidden", c.hidden);
  positive("heads", c.heads);
  positive("vocabulary", c.vocabulary);
  positive("positions", c.positions);
  positive("ffn", c.ffn_size());
  require<ValueError>(c.dropout >= 0 && c.dropout < 1, "model {}: dropout {} is not in [0, 1)", name,
                      c.dropout);
  require<ValueError>(c.hidden % c.heads == 0, "model {}: hidden {} does not divide into {} heads", name,
                      c.hidden, c.heads);
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Gpt2Embedding>(c));
  for (Index i = 0; i < c.layers; ++i) blocks.push_back(std::make_unique<Gpt2Layer>(c, i));
  blocks.push_back(std::make_unique<Gpt2Head>(c));
  return Model(name, std::move(blocks), [](const Variables& outputs, const Tensors& targets) {
    return ops::cross_entropy_sum(outputs[0], Variable(targets[0]));
  });
}

}  // namespace penstock
