// Hugging Face directories that the tests make themselves: one file or shards, every storage type, old names,
// buffers, and everything that must be refused by name.
#include "models/huggingface/directory.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "core/file.h"
#include "support/reference_files.h"
#include "support/temp_folder.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A tensor to be written.
struct Bytes {
  DType dtype = DType::f32;
  Shape shape = {};
  std::vector<std::byte> data = {};
};

template <class T>
Bytes bytes_of(const Shape& shape, const std::function<T(Index)>& value) {
  Bytes bytes{dtype_of<T>, shape};
  for (Index i = 0; i < shape.numel(); ++i) {
    const T v = value(i);
    const auto* raw = reinterpret_cast<const std::byte*>(&v);
    bytes.data.insert(bytes.data.end(), raw, raw + sizeof(T));
  }
  return bytes;
}

void write_file_of(const fs::path& path, const std::map<std::string, Bytes>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, t] : tensors)
    entries.push_back({name, t.dtype, t.shape, t.data.data(), static_cast<Index>(t.data.size())});
  write_safetensors(path, entries, {{"format", "pt"}});
}

const json gpt2_config =
    json::parse(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 6,
  "vocab_size": 10})");
const json llama_config = json::parse(R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8,
  "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 16, "vocab_size": 10})");

/// A value that tells the parameter and the element apart.
float value_at(std::size_t parameter, Index element) {
  return static_cast<float>(parameter) + static_cast<float>(element) / 1024.0f;
}

class HuggingFaceFiles : public ::testing::Test {
 protected:
  void SetUp() override { use(gpt2_config); }

  /// Begins with all parameters of the model in fp32.
  void use(const json& config) {
    config_ = config;
    model_ = read_huggingface_config(config, "config").build();
    tensors_.clear();
    for (std::size_t p = 0; p < model_.parameters().size(); ++p)
      tensors_[model_.parameters()[p].name] =
          bytes_of<float>(model_.parameters()[p].shape, [p](Index i) { return value_at(p, i); });
  }
  void write_config() const { write_file(folder_ / "config.json", config_.dump()); }
  void write_single() const {
    write_config();
    write_file_of(folder_ / "model.safetensors", tensors_);
  }
  /// Tensor k of the sorted names into shard k modulo `count`, and the index.
  json write_shards(int count) const {
    write_config();
    std::vector<std::map<std::string, Bytes>> shards(static_cast<std::size_t>(count));
    json index{{"metadata", {{"total_size", 0}}}, {"weight_map", json::object()}};
    std::size_t k = 0;
    for (const auto& [name, tensor] : tensors_) {
      const std::size_t shard = k++ % shards.size();
      shards[shard][name] = tensor;
      index["weight_map"][name] = shard_name(shard);
    }
    for (std::size_t s = 0; s < shards.size(); ++s) write_file_of(folder_ / shard_name(s), shards[s]);
    write_index(index);
    return index;
  }
  static std::string shard_name(std::size_t shard) {
    return fmt::format("model-{:05}.safetensors", shard + 1);
  }
  void write_index(const json& index) const {
    write_file(folder_ / "model.safetensors.index.json", index.dump());
  }

  fs::path path() const { return folder_ / "."; }

  /// Loads everything and compares with what was written.
  void expect_loads() const {
    RankContext context({.poison = true});
    std::vector<int> blocks;
    for (int b = 0; b < model_.size(); ++b) blocks.push_back(b);
    WeightStore store(context, model_, blocks, {});
    const HuggingFaceDirectory directory = HuggingFaceDirectory::open(path());
    directory.load_weights(model_, store);
    for (std::size_t p = 0; p < model_.parameters().size(); ++p) {
      const ParameterRecord& record = model_.parameters()[p];
      for (const ParameterRecord::Use& use : record.uses) {
        const std::vector<float> values = store.value(use.block, use.parameter).to_vector<float>();
        ASSERT_EQ(static_cast<Index>(values.size()), record.shape.numel());
        for (std::size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(values[i], value_at(p, static_cast<Index>(i))) << record.name << " " << i;
      }
    }
  }
  template <class E = IoError>
  std::string refusal() const {
    return message_of<E>([&] { HuggingFaceDirectory::open(path()); });
  }

  TempFolder folder_;
  json config_;
  Model model_;
  std::map<std::string, Bytes> tensors_;
};

TEST_F(HuggingFaceFiles, OneFileOrShards) {
  for (const json& config : {gpt2_config, llama_config}) {
    use(config);
    write_single();
    expect_loads();
    fs::remove(folder_ / "model.safetensors");
    for (const int count : {1, 2, 5}) {
      write_shards(count);
      expect_loads();
    }
    fs::remove(folder_ / "model.safetensors.index.json");
  }
}

TEST_F(HuggingFaceFiles, IsRecognised) {
  EXPECT_FALSE(HuggingFaceDirectory::is_one(path()));
  write_single();
  EXPECT_TRUE(HuggingFaceDirectory::is_one(path()));
  write_file(folder_ / "manifest.json", "{}");
  EXPECT_FALSE(HuggingFaceDirectory::is_one(path()));
  EXPECT_FALSE(HuggingFaceDirectory::is_one(folder_ / "nothing"));
}

TEST_F(HuggingFaceFiles, NamesWithoutTheBaseModelsPrefixAndBuffers) {
  for (const json& config : {gpt2_config, llama_config}) {
    use(config);
    const bool gpt2 = config == gpt2_config;
    std::map<std::string, Bytes> renamed;
    for (const auto& [name, tensor] : tensors_) {
      const std::string prefix = gpt2 ? "transformer." : "model.";
      renamed[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = tensor;
    }
    tensors_ = renamed;
    write_single();
    expect_loads();
    const std::string base = gpt2 ? "h.0.attn." : "layers.0.self_attn.rotary_emb.";
    tensors_[base + (gpt2 ? "bias" : "inv_freq")] = bytes_of<float>(Shape{3}, [](Index) { return 1.0f; });
    if (gpt2)
      tensors_["h.1.attn.masked_bias"] =
          bytes_of<std::uint8_t>(Shape{1, 1}, [](Index) { return std::uint8_t{1}; });
    write_single();
    expect_loads();
  }
}

// A mask of a type that Penstock has not is a buffer all the same; a parameter of one is refused.
TEST_F(HuggingFaceFiles, TensorsOfForeignTypes) {
  const auto write_as_signed_bytes = [&] {
    write_single();
    std::string text = read_file(folder_ / "model.safetensors");
    const std::size_t place = text.find("\"U8\"");
    ASSERT_NE(place, std::string::npos);
    text[place + 1] = 'I';
    write_file(folder_ / "model.safetensors", text);
  };
  const Bytes bytes = bytes_of<std::uint8_t>(Shape{8}, [](Index) { return std::uint8_t{1}; });
  tensors_["transformer.h.0.attn.bias"] = bytes;
  write_as_signed_bytes();
  expect_loads();
  tensors_.erase("transformer.h.0.attn.bias");
  tensors_["transformer.ln_f.bias"] = bytes;
  write_as_signed_bytes();
  EXPECT_TRUE(contains(refusal(), "tensor 'transformer.ln_f.bias' is I8, a type that is not read"))
      << refusal();
}

// Sixteen bits cover the whole of each type: every value, also infinities, subnormals and NaN, is widened
// exactly.
template <class T>
float widened(std::uint16_t bits) {
  const int exponent_bits = dtype_of<T> == DType::bf16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1),
            fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits & 0x8000 ? -1.0 : 1.0,
               part = std::ldexp(static_cast<double>(fraction), -fraction_bits);
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::numeric_limits<float>::quiet_NaN()
                    : static_cast<float>(sign * std::numeric_limits<double>::infinity());
  return static_cast<float>(
      sign * (exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias)));
}

TEST_F(HuggingFaceFiles, StoredInSixteenBitsIsWidenedExactly) {
  json config = gpt2_config;
  config["vocab_size"] = 65536;
  config["n_embd"] = 8;
  use(config);
  const auto check = [&]<class T>(T) {
    tensors_["transformer.wte.weight"] = bytes_of<T>(Shape{65536, 8}, [](Index i) {
      T value;
      value.bits = static_cast<std::uint16_t>(i / 8 ^ i % 8);
      return value;
    });
    write_single();
    RankContext context({.poison = true});
    WeightStore store(context, model_, {0}, {});
    HuggingFaceDirectory::open(path()).load_weights(model_, store);
    const std::vector<float> values = store.value(0, 0).to_vector<float>();
    ASSERT_EQ(values.size(), 65536u * 8u);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float wanted = widened<T>(static_cast<std::uint16_t>(i / 8 ^ i % 8));
      if (std::isnan(wanted))
        ASSERT_TRUE(std::isnan(values[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(wanted)) << i;
    }
  };
  check(bf16{});
  check(f16{});
}

TEST_F(HuggingFaceFiles, ARankReadsItsOwnBlocksAlone) {
  write_single();
  const HuggingFaceDirectory directory = HuggingFaceDirectory::open(path());
  RankContext context({.poison = true});
  const int head = model_.size() - 1;
  WeightStore first(context, model_, {0}, {}), last(context, model_, {2, head}, {});
  directory.load_weights(model_, first);
  directory.load_weights(model_, last);
  EXPECT_EQ(first.value(0, 1).to_vector<float>()[2], value_at(1, 2));
  // The tied table is stored with the block that uses it last, too.
  const std::size_t norm = model_.parameters().size() - 2;
  ASSERT_EQ(model_.parameters()[norm].name, "transformer.ln_f.weight");
  EXPECT_EQ(last.value(head, 0).to_vector<float>()[5], value_at(norm, 5));
  EXPECT_EQ(last.value(head, 2).to_vector<float>()[7], value_at(0, 7));
}

TEST_F(HuggingFaceFiles, TensorsThatAreMissingSurplusOrMisshapen) {
  const std::map<std::string, Bytes> good = tensors_;
  const auto refused = [&](const std::string& words) {
    for (const bool shards : {false, true}) {
      fs::remove(folder_ / "model.safetensors");
      fs::remove(folder_ / "model.safetensors.index.json");
      if (shards)
        write_shards(2);
      else
        write_single();
      EXPECT_TRUE(contains(refusal(), words)) << refusal();
      EXPECT_TRUE(contains(refusal(), folder_ / "")) << refusal();
    }
    tensors_ = good;
  };
  tensors_.erase("transformer.h.1.mlp.c_fc.bias");
  refused("tensor 'transformer.h.1.mlp.c_fc.bias' (32) is missing");
  tensors_["transformer.h.2.ln_1.weight"] = good.at("transformer.h.1.ln_1.weight");
  refused("tensor 'transformer.h.2.ln_1.weight': is surplus");
  tensors_["score.weight"] = good.at("transformer.ln_f.weight");
  refused("tensor 'score.weight': is surplus");
  tensors_["transformer.h.0.attn.c_attn.weight"].shape = Shape{24, 8};
  refused("tensor 'transformer.h.0.attn.c_attn.weight': has shape (24, 8), but config.json makes it (8, 24)");
  tensors_["wte.weight"] = good.at("transformer.wte.weight");
  refused("is the same parameter as tensor");
  tensors_["transformer.ln_f.bias"] = bytes_of<double>(Shape{8}, [](Index) { return 1.0; });
  refused("tensor 'transformer.ln_f.bias': is fp64");
  tensors_["transformer.ln_f.bias"] = bytes_of<std::int32_t>(Shape{8}, [](Index) { return 1; });
  refused("tensor 'transformer.ln_f.bias': is int32");
}

TEST_F(HuggingFaceFiles, AStoredHeadMustBeTheTableThatItIsTiedTo) {
  const std::string table = "transformer.wte.weight";
  tensors_["lm_head.weight"] = tensors_.at(table);
  write_single();
  expect_loads();
  tensors_["lm_head.weight"] = bytes_of<f16>(Shape{10, 8}, [](Index i) { return f16(value_at(0, i)); });
  write_single();
  expect_loads();  // the same values in another type
  tensors_["lm_head.weight"] =
      bytes_of<float>(Shape{10, 8}, [](Index i) { return value_at(0, i) + (i == 79 ? 1 : 0); });
  write_single();
  EXPECT_TRUE(contains(refusal(), "tensor 'lm_head.weight': element 79 is ")) << refusal();
  EXPECT_TRUE(contains(refusal(), table)) << refusal();
  tensors_["lm_head.weight"].shape = Shape{8, 10};
  write_single();
  EXPECT_TRUE(contains(refusal(), "tensor 'lm_head.weight': is (8, 10)")) << refusal();
  // Not tied: a parameter of its own, which must be there.
  json untied = gpt2_config;
  untied["tie_word_embeddings"] = false;
  use(untied);
  write_single();
  expect_loads();
  tensors_.erase("lm_head.weight");
  write_single();
  EXPECT_TRUE(contains(refusal(), "tensor 'lm_head.weight' (10, 8) is missing")) << refusal();
  EXPECT_TRUE(contains(refusal(), "not tied")) << refusal();
}

TEST_F(HuggingFaceFiles, AnIndexThatDoesNotMatchItsFiles) {
  const std::string a = "transformer.h.0.ln_1.weight";
  const auto refused = [&](const json& index, const std::string& words) {
    write_index(index);
    EXPECT_TRUE(contains(refusal(), words)) << refusal();
    EXPECT_TRUE(contains(refusal(), "model.safetensors.index.json")) << refusal();
  };
  const json good = write_shards(2);
  const std::string there = good["weight_map"][a].get<std::string>(),
                    other = there == shard_name(0) ? shard_name(1) : shard_name(0);
  json index = good;
  index["weight_map"][a] = other;
  refused(index, "tensor '" + a + "' is");
  index = good;
  index["weight_map"].erase(a);
  refused(index, "tensor '" + a + "' is in " + there + ", where the index does not have it");
  index = good;
  index["weight_map"]["more"] = there;
  refused(index, "tensor 'more' is not in " + there);
  index["weight_map"]["more"] = "model-9.safetensors";
  refused(index, "model-9.safetensors is missing, which has tensor 'more'");
  for (const char* strange : {"../model.safetensors", "..", "", "/etc/hostname", "a/b"}) {
    index["weight_map"]["more"] = strange;
    refused(index, fmt::format("tensor 'more': '{}' is no file of the directory", strange));
  }
  index["weight_map"]["more"] = 3;
  refused(index, "the file of tensor 'more' is 3");
  refused(json{{"metadata", {}}}, "has no weight_map");
  refused(json{{"weight_map", json::object()}}, "has no weight_map");
  refused(json::array(), "has no weight_map");
  write_file(folder_ / "model.safetensors.index.json", "{");
  EXPECT_TRUE(contains(refusal(), "index.json: is damaged"));
  write_index(good);
  expect_loads();
}

TEST_F(HuggingFaceFiles, FilesThatAreTruncatedOrNotThere) {
  write_config();
  EXPECT_TRUE(contains(refusal(), "no weights in it: model.safetensors")) << refusal();
  write_file(folder_ / "pytorch_model.bin", "x");
  EXPECT_TRUE(contains(refusal(), "pytorch_model.bin is not read")) << refusal();
  write_single();
  const fs::path file = folder_ / "model.safetensors";
  const auto whole = fs::file_size(file);
  for (const auto size : {whole - 1, whole / 2, std::uintmax_t{100}, std::uintmax_t{5}, std::uintmax_t{0}}) {
    fs::resize_file(file, size);
    EXPECT_TRUE(contains(refusal(), "model.safetensors")) << size << refusal();
    write_single();
  }
  expect_loads();
  write_file(folder_ / "config.json", "{\"model_type\": ");
  EXPECT_TRUE(contains(refusal(), "config.json: is damaged")) << refusal();
  config_["model_type"] = "gpt_neo";
  write_config();
  EXPECT_TRUE(contains(refusal<ValueError>(), "model_type \"gpt_neo\": this family is not read"))
      << refusal<ValueError>();
  EXPECT_TRUE(
      contains(message_of<IoError>([&] { HuggingFaceDirectory::open(folder_ / "nothing"); }), "nothing"));
}

}  // namespace
}  // namespace penstock::testing
