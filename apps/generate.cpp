// penstock-generate: samples text from a checkpoint or a Hugging Face directory.
#include <fmt/ranges.h>

#include <chrono>

#include "apps/common/inference.h"
#include "apps/common/ranks.h"
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

/// The ids of --prompt or --prompt-ids, checked against the model.
std::vector<std::int32_t> read_prompt(const GenerateFlags& flags, const InferenceModel& model) {
  std::vector<std::int32_t> prompt;
  if (flags.prompt) {
    prompt = model.tokenizer().encode(*flags.prompt);
  } else {
    for (const Index id : flags.prompt_ids) prompt.push_back(narrow<std::int32_t>(id));
  }
  const char* flag = flags.prompt ? "--prompt" : "--prompt-ids";
  const Index positions = model.config().sequence_length(), vocabulary = model.config().vocabulary();
  require<ValueError>(!prompt.empty(), "{}: is empty: at least one token is needed to continue from", flag);
  require<ValueError>(static_cast<Index>(prompt.size()) <= positions,
                      "{}: {} tokens, but the model has {} positions", flag, prompt.size(), positions);
  for (const std::int32_t id : prompt)
    require<ValueError>(id >= 0 && id < vocabulary, "{} {}: the model's vocabulary is 0 to {}", flag, id,
                        vocabulary - 1);
  return prompt;
}

void generate_text(Frame& frame, const GenerateFlags& flags, Communicator& world, const std::string& host) {
  std::optional<InferenceModel> model;
  std::vector<std::int32_t> prompt;
  agree(world, [&] {
    model.emplace(flags.common, world.size());
    prompt = read_prompt(flags, *model);
  });
  const int threads = inference_threads(flags.common, world, host);
  frame.start_work();
  world.barrier();
  RankContext context({.device = {}, .threads = threads, .deadline_seconds = flags.common.deadline});
  Executor& executor = model->load(context, world);
  const Index positions = model->config().sequence_length(), vocabulary = model->config().vocabulary();
  const SamplingOptions options{flags.temperature, flags.top_k, flags.top_p,
                                static_cast<std::uint64_t>(flags.seed)};
  const bool leader = world.rank() == 0, stream = leader && !flags.common.json;
  const auto tell = [&](std::int32_t id) {
    if (stream) frame.print(model->text_of({&id, 1}).value_or(fmt::format(" {}", id)));
  };
  if (stream) frame.print(model->text_of(prompt).value_or(fmt::format("{}", fmt::join(prompt, " "))));
  const auto start = std::chrono::steady_clock::now();
  const Generation result =
      generate_tokens(executor, world, model->placement(), prompt, flags.tokens, positions, vocabulary,
                      options, flags.common.logits.has_value(), tell);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double rate = seconds > 0 ? static_cast<double>(result.ids.size()) / seconds : 0.0;
  if (flags.common.logits && world.rank() == world.size() - 1)
    write_logits(*flags.common.logits, result.logits, vocabulary);
  if (leader && flags.common.json) {
    const std::optional<std::string> text = model->text_of(result.ids);
    const nlohmann::ordered_json document{{"prompt_ids", prompt},
                                          {"ids", result.ids},
                                          {"text", text ? nlohmann::ordered_json(*text) : nullptr},
                                          {"tokens_per_second", rate}};
    frame.print(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else if (leader) {
    frame.print("\n");
    frame.note(fmt::format("{} tokens, {:.1f} tokens/s\n", result.ids.size(), rate));
  }
  world.barrier();
}

int body(Frame& frame, Ranks& ranks, int argc, char** argv) {
  GenerateFlags flags;
  Program program("penstock-generate", "Samples text from a checkpoint or a Hugging Face directory.");
  Command& root = program.root();
  root.example(
      "penstock-generate --from runs/a/checkpoints --prompt 'The licence' --tokens 80 --temperature 0.8 "
      "--top-k 20");
  flags.common.define(root);
  root.group("Sampling");
  root.text("prompt", flags.prompt, "TEXT", "text to continue");
  root.integers("prompt-ids", flags.prompt_ids, "or its ids, between commas",
                between<Index>(0, std::numeric_limits<std::int32_t>::max()));
  root.integer("tokens", flags.tokens, "new tokens; the context's end ends it too", at_least<Index>(0));
  root.number("temperature", flags.temperature, "0 is greedy", at_least(0.0));
  root.integer("top-k", flags.top_k, "only the K most likely; 0 is off", at_least<Index>(0));
  root.number("top-p", flags.top_p, "only the most likely that hold P of the probability",
              NumberRange{0, 1, true, false});
  root.integer("seed", flags.seed, "of the draws", at_least<Index>(0));
  Parsed parsed;
  ranks.join([&]() -> Ranks::Wishes {
    parsed = program.parse(argc, argv);
    if (!parsed.print.empty()) return {};
    flags.common.check();
    require<ValueError>(flags.prompt.has_value() != root.given("prompt-ids"),
                        "--prompt and --prompt-ids: give one of them");
    return {flags.common.deadline, flags.common.ranks, [&] { return nlohmann::json(root.settings()); }};
  });
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  ranks.run(flags.common.ranks, flags.common.deadline,
            [&](Communicator& world) { generate_text(frame, flags, world, ranks.host_name()); });
  return kExitDone;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-generate", [&](penstock::Frame& frame, penstock::Ranks& ranks) {
    return penstock::body(frame, ranks, argc, argv);
  });
}
