// penstock-eval: loss and perplexity on a file.
#include <cmath>

#include "apps/common/inference.h"
#include "apps/common/ranks.h"
#include "core/safetensors.h"
#include "data/corpus.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/train/trainer.h"
#include "parallel/train/window_batches.h"

namespace penstock {
namespace {

struct EvalFlags {
  InferenceFlags common;
  std::optional<std::string> data;
  std::optional<Index> seq_len, stride, ignore_target;
  std::string token_dtype = "auto";
  Index micro_batch = 4;
};

/// Logits of the first window, (T, V).
void write_logits(const std::string& path, const std::vector<float>& logits, Index vocabulary) {
  const auto bytes = static_cast<Index>(logits.size() * sizeof(float));
  const SafetensorsEntry entry{"logits", DType::f32, Shape{static_cast<Index>(logits.size()) / vocabulary, vocabulary},
                               reinterpret_cast<const std::byte*>(logits.data()), bytes};
  write_safetensors(path, {&entry, 1});
}

void evaluate_file(Frame& frame, const EvalFlags& flags, Communicator& world, const std::string& host) {
  std::optional<InferenceModel> model;
  std::optional<WindowBatches> source;
  const auto checks = [&] {
    model.emplace(flags.common, world.size());
    const Index positions = model->config().sequence_length();
    const Index length = flags.seq_len.value_or(positions);
    require<ValueError>(length <= positions, "--seq-len {}: the model has {} positions", length, positions);
    const std::filesystem::path path = *flags.data;
    const TokenRow row = load_corpus({&path, 1}, {&model->tokenizer(), model->config().vocabulary(), parse_token_dtype(flags.token_dtype)});
    std::optional<std::int32_t> ignored;
    if (flags.ignore_target) ignored = narrow<std::int32_t>(*flags.ignore_target);
    source.emplace(row, length, flags.stride.value_or(length), flags.micro_batch * 2 * world.size(), ignored);
  };
  agree(world, checks);
  const int threads = flags.common.threads ? narrow<int>(*flags.common.threads) : default_threads(world, host);
  if (world.rank() == 0) frame.start_work();
  world.barrier();
  RankContext context({.device = {}, .threads = threads, .deadline_seconds = flags.common.deadline});
  Executor& executor = model->load(context, world);
  const EvalRecord record = evaluate(executor, world, model->placement(), *source, source->batches(), flags.micro_batch);
  if (flags.common.logits) {
    std::vector<float> logits;
    const Index vocabulary = model->config().vocabulary();
    const auto take = [&](Index micro_batch, const Variables& outputs) {
      if (micro_batch == 0) logits = outputs[0].tensor().slice(0, 0, 1).to_vector<float>();
    };
    const Plan plan = lower(forward_plan(model->placement(), div_up(source->batch(1), flags.micro_batch)));
    executor.run(plan, *source, {.mode = Mode::evaluate, .micro_batch_size = flags.micro_batch, .on_output = take, .loss = false});
    if (world.rank() == world.size() - 1) write_logits(*flags.common.logits, logits, vocabulary);
  }
  if (world.rank() == 0) {
    const auto number = [](double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); };
    if (flags.common.json)
      frame.print(nlohmann::ordered_json{{"loss", number(record.loss)}, {"perplexity", number(record.perplexity)}, {"tokens", record.tokens}}.dump() + "\n");
    else
      frame.print(fmt::format("loss {:.6f} nats a token, perplexity {:.4f}, over {} tokens\n", record.loss, record.perplexity, record.tokens));
  }
  world.barrier();
}

int body(Frame& frame, int argc, char** argv) {
  Ranks ranks(frame);
  EvalFlags flags;
  Program program("penstock-eval", "Loss and perplexity of a checkpoint on a file.");
  Command& root = program.root();
  root.example("penstock-eval --from runs/a/checkpoints --data book.txt --stride 64");
  flags.common.define(root);
  root.group("Data");
  root.text("data", flags.data, "PATH", "text file, folder of text, or token file (.bin)");
  root.integer("seq-len", flags.seq_len, "inputs of a window (default: the model's positions)", at_least<Index>(1));
  root.integer("stride", flags.stride, "tokens between the starts of windows (default and at most: --seq-len)", at_least<Index>(1));
  root.choice("token-dtype", flags.token_dtype, {"auto", "uint16", "uint32"}, "ids of headerless token files");
  root.integer("ignore-target", flags.ignore_target, "targets with this id do not count", at_least<Index>(0));
  root.integer("micro-batch", flags.micro_batch, "windows at a time in a stage", at_least<Index>(1));
  const Parsed parsed = program.parse(argc, argv);
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  flags.common.check();
  require<ValueError>(flags.data.has_value(), "--data is missing: a text file, a folder of text, or a token file (.bin)");
  ranks.run(flags.common.ranks, flags.common.deadline, [&](Communicator& world) { evaluate_file(frame, flags, world, ranks.host_name()); });
  return kExitDone;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-eval", [&](penstock::Frame& frame) { return penstock::body(frame, argc, argv); });
}
