// penstock-generate: samples text from a checkpoint.
#include <chrono>

#include "apps/common/inference.h"
#include "apps/common/ranks.h"
#include "core/safetensors.h"
#include "parallel/generate/generate.h"

namespace penstock {
namespace {

struct GenerateFlags {
  InferenceFlags common;
  std::optional<std::string> prompt;
  std::vector<Index> prompt_ids;
  Index tokens = 100, top_k = 0, seed = 0;
  double temperature = 1, top_p = 1;
};

void generate_text(Frame& frame, const GenerateFlags& flags, bool has_ids, Communicator& world, const std::string& host) {
  std::optional<InferenceModel> model;
  std::vector<std::int32_t> prompt;
  agree(world, [&] {
    model.emplace(flags.common, world.size());
    if (has_ids)
      for (const Index id : flags.prompt_ids) prompt.push_back(narrow<std::int32_t>(id));
    else
      prompt = model->tokenizer().encode(*flags.prompt);
    const char* flag = has_ids ? "--prompt-ids" : "--prompt";
    require<ValueError>(!prompt.empty(), "{}: is empty: at least one token is needed to continue from", flag);
    const Index positions = model->config().sequence_length(), vocabulary = model->config().vocabulary();
    require<ValueError>(static_cast<Index>(prompt.size()) <= positions, "{}: {} tokens, but the model has {} positions", flag, prompt.size(), positions);
    for (const std::int32_t id : prompt)
      require<ValueError>(id >= 0 && id < vocabulary, "{} {}: the model's vocabulary is 0 to {}", flag, id, vocabulary - 1);
  });
  const int threads = flags.common.threads ? narrow<int>(*flags.common.threads) : default_threads(world, host);
  const bool leader = world.rank() == 0;
  if (leader) frame.start_work();
  world.barrier();
  RankContext context({.device = {}, .threads = threads, .deadline_seconds = flags.common.deadline});
  Executor& executor = model->load(context, world);
  const SamplingOptions options{flags.temperature, flags.top_k, flags.top_p, static_cast<std::uint64_t>(flags.seed)};
  const bool stream = leader && !flags.common.json;
  if (stream) frame.print(model->tokenizer().decode(prompt));
  const auto start = std::chrono::steady_clock::now();
  const Generation result = generate_tokens(
      executor, world, model->placement(), prompt, flags.tokens, model->config().sequence_length(), model->config().vocabulary(), options,
      flags.common.logits.has_value(), [&](std::int32_t id) {
        if (stream) frame.print(model->tokenizer().decode({&id, 1}));
      });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double rate = result.ids.empty() || seconds <= 0 ? 0.0 : static_cast<double>(result.ids.size()) / seconds;
  if (flags.common.logits && world.rank() == world.size() - 1) {
    const Index vocabulary = model->config().vocabulary();
    const SafetensorsEntry entry{"logits", DType::f32, Shape{static_cast<Index>(result.logits.size()) / vocabulary, vocabulary},
                                 reinterpret_cast<const std::byte*>(result.logits.data()), static_cast<Index>(result.logits.size() * sizeof(float))};
    write_safetensors(*flags.common.logits, {&entry, 1});
  }
  if (leader && flags.common.json) {
    const nlohmann::ordered_json document{{"prompt_ids", prompt}, {"ids", result.ids}, {"text", model->tokenizer().decode(result.ids)}, {"tokens_per_second", rate}};
    frame.print(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else if (leader) {
    frame.print("\n");
    frame.note(fmt::format("{} tokens, {:.1f} tokens/s\n", result.ids.size(), rate));
  }
  world.barrier();
}

int body(Frame& frame, int argc, char** argv) {
  Ranks ranks(frame);
  GenerateFlags flags;
  Program program("penstock-generate", "Samples text from a checkpoint.");
  Command& root = program.root();
  root.example("penstock-generate --from runs/a/checkpoints --prompt 'The licence' --tokens 80 --temperature 0.8 --top-k 20");
  flags.common.define(root);
  root.group("Sampling");
  root.text("prompt", flags.prompt, "TEXT", "text to continue");
  root.integers("prompt-ids", flags.prompt_ids, "or its ids, between commas", at_least<Index>(0));
  root.integer("tokens", flags.tokens, "new tokens; the context's end ends it too", at_least<Index>(0));
  root.number("temperature", flags.temperature, "0 is greedy", at_least(0.0));
  root.integer("top-k", flags.top_k, "only the K most likely; 0 is off", at_least<Index>(0));
  root.number("top-p", flags.top_p, "only the most likely that hold P of the probability", NumberRange{0, 1, true, false});
  root.integer("seed", flags.seed, "of the draws", at_least<Index>(0));
  const Parsed parsed = program.parse(argc, argv);
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  flags.common.check();
  const bool has_ids = root.given("prompt-ids");
  require<ValueError>(flags.prompt.has_value() != has_ids, "--prompt and --prompt-ids: give one of them");
  ranks.run(flags.common.ranks, flags.common.deadline,
            [&](Communicator& world) { generate_text(frame, flags, has_ids, world, ranks.host_name()); });
  return kExitDone;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-generate", [&](penstock::Frame& frame) { return penstock::body(frame, argc, argv); });
}
