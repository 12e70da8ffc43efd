// InferenceFlags and InferenceModel.
#include "apps/common/inference.h"

#include "apps/common/outputs.h"
#include "apps/common/ranks.h"
#include "apps/common/source_directory.h"
#include "core/safetensors.h"

namespace penstock {

void InferenceFlags::define(Command& root) {
  root.group("Model");
  root.text("from", from, "DIR",
            "checkpoint (a step's directory, or the directory of steps: then the newest) or Hugging Face "
            "directory");
  root.text("tokenizer", tokenizer, "byte", "how text becomes tokens (default: the directory's)");
  root.choice("dtype", dtype, {"fp32", "bf16"}, "of activations and of weights in use");
  root.not_yet("device", "cpu|cuda|cuda-host|auto", "where to compute", {"cpu", "auto"});
  root.group("Layout");
  root.integer("pp", pp, "pipeline ranks (default: all)", at_least<Index>(1));
  root.not_yet("tp", "N", "tensor-parallel ranks", {"1"});
  root.integer("ranks", ranks, "in-process ranks (threads), without mpirun", between<Index>(1, 4096));
  root.integer("threads", threads, "compute threads of a rank (default: its CPUs shared by its ranks)",
               between<Index>(1, 1024));
  root.number("deadline", deadline, "seconds that a rank waits for another", more_than(0.0));
  root.group("Output");
  root.boolean("json", json, "one JSON document on stdout");
  root.text("logits", logits, "FILE.safetensors", "write logits (T, V) for checking");
}

void InferenceFlags::check() const {
  require<ValueError>(from.has_value(), "--from is missing: a checkpoint or a Hugging Face directory");
  require<ValueError>(!tokenizer || *tokenizer == "byte", "--tokenizer {}: not yet; byte is built",
                      tokenizer.value_or(""));
  if (logits) require_writable_file("logits", *logits);
}

InferenceModel::InferenceModel(const InferenceFlags& flags, int ranks)
    : source_(open_source("from", *flags.from)), compute_(parse_dtype(flags.dtype)) {
  config_ = source_.model;
  model_ = config_.build();
  tokenizer_name_ = flags.tokenizer.value_or(source_.tokenizer);
  if (tokenizer_name_ == "byte") tokenizer_ = load_tokenizer(tokenizer_name_);
  require<ValueError>(!flags.pp || *flags.pp == ranks, "--pp {}: there are {} ranks", flags.pp.value_or(0),
                      ranks);
  placement_ = linear_placement(ranks);
  std::vector<double> costs;
  for (int b = 0; b < model_.size(); ++b) costs.push_back(model_.block(b).layers() > 0 ? 1.0 : 0.0);
  partition_ = partition_by_cost(model_, costs, std::vector<double>(static_cast<std::size_t>(ranks), 1.0));
}

const Tokenizer& InferenceModel::tokenizer() const {
  require<ValueError>(tokenizer_ != nullptr,
                      "--from {}: the tokenizer {} is not yet read; give ids, or --tokenizer byte",
                      source_.path, tokenizer_name_);
  return *tokenizer_;
}

std::optional<std::string> InferenceModel::text_of(std::span<const std::int32_t> ids) const {
  if (!tokenizer_) return std::nullopt;
  std::string text;
  for (const std::int32_t id : ids)
    text += id < tokenizer_->vocabulary() ? tokenizer_->decode({&id, 1}) : "\xef\xbf\xbd";
  return text;
}

Executor& InferenceModel::load(RankContext& context, Communicator& pipeline) {
  std::vector<int> blocks;
  const BlockRange range = partition_[static_cast<std::size_t>(pipeline.rank())];
  for (int b = range.begin; b < range.end; ++b) blocks.push_back(b);
  weights_.emplace(context, model_, blocks, WeightStore::Options{.compute = compute_});
  source_.weights->load_weights(model_, *weights_);
  executor_.emplace(ExecutorSetup{&context, &pipeline, &model_, partition_, &*weights_, 0});
  return *executor_;
}

int inference_threads(const InferenceFlags& flags, Communicator& world, const std::string& host) {
  return flags.threads ? narrow<int>(*flags.threads) : default_threads(world, host);
}

void write_logits(const std::string& path, const std::vector<float>& logits, Index vocabulary) {
  const auto values = static_cast<Index>(logits.size());
  const SafetensorsEntry entry{"logits", DType::f32, Shape{values / vocabulary, vocabulary},
                               reinterpret_cast<const std::byte*>(logits.data()),
                               values * static_cast<Index>(sizeof(float))};
  write_safetensors(path, {&entry, 1});
}

}  // namespace penstock
