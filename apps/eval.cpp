// penstock-eval: loss and perplexity on a file.
#include <cmath>

#include "apps/common/inference.h"
#include "apps/common/outputs.h"
#include "apps/common/ranks.h"
#include "autograd/convert.h"
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

/// The windows of --data, checked against the model.
WindowBatches open_windows(const EvalFlags& flags, const InferenceModel& model, int ranks) {
  const Index positions = model.config().sequence_length();
  const Index length = flags.seq_len.value_or(positions);
  require<ValueError>(length <= positions, "--seq-len {}: the model has {} positions", length, positions);
  const std::filesystem::path path = *flags.data;
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of_data(model.tokenizer_name(), {*flags.data});
  const TokenRow row = load_corpus(
      {&path, 1}, {tokenizer.get(), model.config().vocabulary(), parse_token_dtype(flags.token_dtype)});
  std::optional<std::int32_t> ignored;
  if (flags.ignore_target) ignored = narrow<std::int32_t>(*flags.ignore_target);
  return {row, length, flags.stride.value_or(length), flags.micro_batch * 2 * ranks, ignored};
}

/// Logits of the inputs of the first window, on the rank of the last stage; empty on the others.
std::vector<float> first_window_logits(const EvalFlags& flags, const InferenceModel& model,
                                       Executor& executor, WindowBatches& source) {
  std::vector<float> logits;
  const auto take = [&](Index micro_batch, const Variables& outputs) {
    if (micro_batch == 0)
      logits = converted(outputs[0].tensor().slice(0, 0, 1), DType::f32).to_vector<float>();
  };
  const Plan plan = lower(forward_plan(model.placement(), div_up(source.batch(1), flags.micro_batch)));
  executor.run(
      plan, source,
      {.mode = Mode::evaluate, .micro_batch_size = flags.micro_batch, .on_output = take, .loss = false});
  return logits;
}

std::string result_text(const EvalRecord& record, bool json) {
  if (!json)
    return fmt::format("loss {:.6f} nats a token, perplexity {:.4f}, over {} tokens\n", record.loss,
                       record.perplexity, record.tokens);
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  const nlohmann::ordered_json document{
      {"loss", number(record.loss)}, {"perplexity", number(record.perplexity)}, {"tokens", record.tokens}};
  return document.dump() + "\n";
}

void evaluate_file(Frame& frame, const EvalFlags& flags, Communicator& world, const std::string& host) {
  std::optional<InferenceModel> model;
  std::optional<WindowBatches> source;
  agree(world, [&] {
    model.emplace(flags.common, world.size());
    source.emplace(open_windows(flags, *model, world.size()));
  });
  const int threads = inference_threads(flags.common, world, host);
  frame.start_work();
  world.barrier();
  RankContext context({.device = {}, .threads = threads, .deadline_seconds = flags.common.deadline});
  Executor& executor = model->load(context, world);
  const EvalRecord record =
      evaluate(executor, world, model->placement(), *source, source->batches(), flags.micro_batch);
  if (flags.common.logits) {
    const std::vector<float> logits = first_window_logits(flags, *model, executor, *source);
    if (world.rank() == world.size() - 1)
      write_logits(*flags.common.logits, logits, model->config().vocabulary());
  }
  if (world.rank() == 0) frame.print(result_text(record, flags.common.json));
  world.barrier();
}

int body(Frame& frame, Ranks& ranks, int argc, char** argv) {
  EvalFlags flags;
  Program program("penstock-eval", "Loss and perplexity of a model on a file.");
  Command& root = program.root();
  root.example("penstock-eval --from runs/a/checkpoints --data book.txt --stride 64");
  flags.common.define(root);
  root.group("Data");
  root.text("data", flags.data, "PATH", "text file, folder of text, or token file (.bin)");
  root.integer("seq-len", flags.seq_len, "inputs of a window (default: the model's positions)",
               at_least<Index>(1));
  root.integer("stride", flags.stride,
               "tokens between the starts of windows (default and at most: --seq-len)", at_least<Index>(1));
  root.choice("token-dtype", flags.token_dtype, {"auto", "uint16", "uint32"},
              "ids of headerless token files");
  root.integer("ignore-target", flags.ignore_target, "targets with this id do not count",
               between<Index>(0, std::numeric_limits<std::int32_t>::max()));
  root.integer("micro-batch", flags.micro_batch, "windows at a time in a stage",
               between<Index>(1, 1'000'000));
  Parsed parsed;
  ranks.join([&]() -> Ranks::Wishes {
    parsed = program.parse(argc, argv);
    if (!parsed.print.empty()) return {};
    flags.common.check();
    require<ValueError>(flags.data.has_value(),
                        "--data is missing: a text file, a folder of text, or a token file (.bin)");
    if (flags.common.logits) require_distinct({{"logits", *flags.common.logits}}, {{"data", *flags.data}});
    return {flags.common.deadline, flags.common.ranks, [&] { return nlohmann::json(root.settings()); }};
  });
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  ranks.run(flags.common.ranks, flags.common.deadline,
            [&](Communicator& world) { evaluate_file(frame, flags, world, ranks.host_name()); });
  return kExitDone;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-eval", [&](penstock::Frame& frame, penstock::Ranks& ranks) {
    return penstock::body(frame, ranks, argc, argv);
  });
}
