// From settings to a session.
#include "apps/train/session.h"

#include <fmt/ranges.h>

#include "apps/common/model_file.h"
#include "core/machine_memory.h"
#include "data/corpus.h"
#include "parallel/pipeline/schedule/csv.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/train/layout.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A model of --init-from has the shape of its directory; what the command line says of it must agree.
ModelConfig model_of_source(const TrainSettings& s, const SourceDirectory& from,
                            const ModelOverrides& overrides) {
  ModelConfig config = from.model;
  const auto same = [&](const std::string& flag, const auto& wish, const auto& value) {
    require<ValueError>(wish == value, "{} {}: contradicts --init-from {}, whose model has {}", flag, wish,
                        from.path, value);
  };
  if (s.layers) same("--layers", *s.layers, config.layers());
  if (s.hidden) same("--hidden", *s.hidden, config.hidden());
  if (s.heads) same("--heads", *s.heads, config.heads());
  if (s.kv_heads) same("--kv-heads", *s.kv_heads, config.kv_heads());
  if (s.ffn) same("--ffn", *s.ffn, config.ffn());
  if (s.vocab) same("--vocab", *s.vocab, config.vocabulary());
  if (s.tied_embeddings) same("--tied-embeddings", *s.tied_embeddings, config.tied_embeddings());
  require<ValueError>(!s.seq_len || *s.seq_len <= config.sequence_length(),
                      "--seq-len {}: the model of --init-from {} has {} positions", s.seq_len.value_or(0),
                      from.path, config.sequence_length());
  if (s.command->given("model")) {
    nlohmann::json wish = choose_named_model(s.model, overrides, config.vocabulary()).to_json();
    const nlohmann::json there = config.to_json();
    for (const char* free : {"name", "positions", "dropout"}) wish.erase(free);
    for (const auto& [key, value] : wish.items())
      require<ValueError>(there.contains(key) && there[key] == value,
                          "--model {}: contradicts --init-from {}: {} is {} there, {} in the model", s.model,
                          from.path, key, there.contains(key) ? there[key].dump() : "none", value.dump());
  }
  if (overrides.dropout) config.set_dropout(static_cast<float>(*overrides.dropout));
  return config;
}

ModelConfig choose_model(const TrainSettings& s, const std::optional<SourceDirectory>& from) {
  ModelOverrides overrides;
  overrides.layers = s.layers;
  overrides.hidden = s.hidden;
  overrides.heads = s.heads;
  overrides.kv_heads = s.kv_heads;
  overrides.ffn = s.ffn;
  overrides.vocabulary = s.vocab;
  overrides.sequence_length = s.seq_len;
  overrides.tied_embeddings = s.tied_embeddings;
  if (s.command->given("dropout")) overrides.dropout = s.dropout;
  if (from) return model_of_source(s, *from, overrides);
  // The vocabulary follows the tokenizer; token files need none, then it is the model's.
  return choose_named_model(s.model, overrides, s.tokenizer || !all_token_files(s.data) ? 256 : 0);
}

void load_data(const TrainSettings& s, Session& session) {
  std::vector<std::string> sources = s.data;
  if (s.valid_data) sources.push_back(*s.valid_data);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of_data(session.tokenizer, sources);
  const CorpusOptions options{tokenizer.get(), session.model_config.vocabulary(),
                              parse_token_dtype(s.token_dtype)};
  const auto load = [&](const char* flag, const std::vector<std::string>& paths) {
    try {
      return load_corpus(std::vector<fs::path>(paths.begin(), paths.end()), options);
    } catch (Error& e) {
      e.add_context(flag);
      throw;
    }
  };
  TokenRow row = load("--data", s.data), held_out;
  if (s.valid_data) held_out = load("--valid-data", {*s.valid_data});
  if (s.valid_fraction) std::tie(row, held_out) = split_row(row, *s.valid_fraction);
  SamplerOptions sampler{.sequence_length = session.sequence_length,
                         .batch = s.batch,
                         .order = parse_data_order(s.data_order),
                         .seed = static_cast<std::uint64_t>(s.seed),
                         .ignore_target = std::nullopt};
  if (s.ignore_target) sampler.ignore_target = narrow<std::int32_t>(*s.ignore_target);
  const auto add_context = [&](const std::string& flag, auto&& make) {
    try {
      return make();
    } catch (Error& e) {
      e.add_context(flag);
      throw;
    }
  };
  session.batches = add_context(fmt::format("--data {}", fmt::join(s.data, " ")),
                                [&] { return std::make_unique<TokenBatches>(Sampler(row, sampler)); });
  const RowFingerprint print = row.fingerprint();
  session.checkpoint_info.data = {{"tokens", print.tokens},
                                  {"hash", print.hash},
                                  {"order", s.data_order},
                                  {"batch", s.batch},
                                  {"sequence_length", session.sequence_length}};
  session.data_seen = fmt::format("{} tokens (hash {:016x})", print.tokens, print.hash);
  if (s.valid_data) {
    const RowFingerprint other = held_out.fingerprint();
    session.data_seen += fmt::format(" and {} held out (hash {:016x})", other.tokens, other.hash);
  }
  if (s.eval_every == 0 && !s.valid_data && !s.valid_fraction) return;
  sampler.order = DataOrder::sequential;
  session.evaluation = add_context(
      s.valid_data ? "--valid-data " + *s.valid_data : fmt::format("--valid-fraction {}", *s.valid_fraction),
      [&] { return std::make_unique<EvaluationBatches>(Sampler(held_out, sampler)); });
  session.eval_batches = std::min(s.eval_batches, session.evaluation->batches());
}

/// "auto", or numbers between commas.
Partition choose_partition(const TrainSettings& s, Session& session, Index stages) {
  if (s.partition != "auto") {
    std::vector<Index> layers;
    for (const std::string& item : split_commas(s.partition))
      layers.push_back(parse_integer("partition", item, at_least<Index>(0)));
    return partition_by_layers(session.model, layers, stages);
  }
  return balanced_partition(session.model, *session.batches, session.micro_batch, stages,
                            parse_recompute(s.recompute));
}

void make_plan(const TrainSettings& s, int ranks, Session& session) {
  const Index pp = s.pp.value_or(1);
  require<ValueError>(pp == ranks || ranks % pp != 0,
                      "--pp {}: {} ranks leave --dp {}, which is not yet built; give --pp {}", pp, ranks,
                      ranks / pp, ranks);
  session.layout = {.pp = narrow<int>(pp)};
  const Mesh mesh(session.layout, ranks);
  const bool file = s.schedule.ends_with(".csv");
  Plan plan;
  if (file) {
    plan = read_csv(s.schedule);
    require<ValueError>(plan.pp == pp, "--schedule {}: a plan for {} ranks, but --pp is {}", s.schedule,
                        plan.pp, pp);
    session.micro_batch = s.micro_batch.value_or(div_up(s.batch, plan.micro_batches));
  } else {
    session.micro_batch = s.micro_batch.value_or(default_micro_batch_size(s.batch, pp));
    GenerateOptions options;
    options.pp = pp;
    options.micro_batches = div_up(s.batch, session.micro_batch);
    plan = generate(s.schedule, options);
  }
  require<ValueError>(
      plan.micro_batches == div_up(s.batch, session.micro_batch),
      "--schedule {}: a plan for {} micro-batches, but --batch {} in micro-batches of {} makes {}",
      s.schedule, plan.micro_batches, s.batch, session.micro_batch, div_up(s.batch, session.micro_batch));
  session.partition = choose_partition(s, session, plan.stages);
  session.recompute = recompute_of_blocks(session.model, session.partition, parse_recompute(s.recompute));
  try {
    session.plan = executable_plan(plan);
  } catch (Error& e) {
    e.add_context("--schedule " + s.schedule);
    throw;
  }
}

/// A run that cannot fit into this machine is not begun: the system would end it, or all else. Very many
/// ranks are those of many machines, and telling their memory takes long.
void check_memory(const TrainSettings& s, int ranks, const Session& session) {
  constexpr int most_ranks = 64;
  if (s.dry_run || ranks > most_ranks) return;
  const std::vector<Index> peaks = predict_peak_bytes(session.training_setup(), *session.batches, 1);
  const int here = s.ranks ? ranks : 1;  // under a launcher, other ranks may have machines of their own
  Index wanted = 0;
  for (const Index peak : peaks) wanted = here > 1 ? wanted + peak : std::max(wanted, peak);
  const Index there = machine_memory();
  require<ValueError>(
      wanted <= there,
      "--micro-batch {}, --seq-len {}: {} of {} would need {} bytes of memory and {} are there; "
      "a smaller --micro-batch, --seq-len or model, --recompute full or more stages need less",
      session.micro_batch, session.sequence_length, here > 1 ? "the ranks" : "a rank",
      session.model_config.name, wanted, there);
}

std::unique_ptr<Optimizer> make_optimizer(const TrainSettings& s, double weight_decay) {
  if (s.optimizer == "sgd") return std::make_unique<Sgd>(kernels::SgdSettings{s.momentum, weight_decay});
  return std::make_unique<AdamW>(kernels::AdamWSettings{s.beta1, s.beta2, s.eps, weight_decay});
}

void check_checkpoints(const TrainSettings& s, Session& session) {
  if (!s.checkpoint_dir) return;
  const fs::path directory = *s.checkpoint_dir;
  std::error_code error;
  require<ValueError>(!fs::exists(directory, error) || fs::is_directory(directory, error),
                      "--checkpoint-dir {}: is a file", *s.checkpoint_dir);
  if (!s.resume) {
    require<ValueError>(
        list_checkpoints(directory).empty(),
        "--checkpoint-dir {}: holds checkpoints; add --resume to go on from them, or name another directory",
        *s.checkpoint_dir);
    return;
  }
  session.resume = open_checkpoint("resume", *s.checkpoint_dir);
  const CheckpointInfo& info = session.resume->info();
  const auto refuse = [&](const char* what, const nlohmann::json& theirs, const nlohmann::json& ours) {
    require<ValueError>(theirs == ours, "--resume {}: the checkpoint is of another {}: {} there, {} here",
                        session.resume->path().string(), what, theirs.dump(), ours.dump());
  };
  nlohmann::json model = info.model, mine = session.model_config.to_json();
  for (const char* setting : {"name", "dropout"}) {
    model.erase(setting);
    mine.erase(setting);
  }
  refuse("model", model, mine);
  const auto text_of =
      [](const nlohmann::json& data) {  // the rest are settings, which the command line may change
        return nlohmann::json{{"tokens", data.at("tokens")}, {"hash", data.at("hash")}};
      };
  refuse("data", text_of(info.data), text_of(session.checkpoint_info.data));
  refuse("optimizer", info.optimizer.at("name"), session.checkpoint_info.optimizer.at("name"));
}

}  // namespace

TrainingSetup Session::training_setup() const {
  TrainingSetup setup;
  setup.model = &model;
  setup.plan = plan;
  setup.partition = partition;
  setup.optimizer = optimizer.get();
  setup.micro_batch_size = micro_batch;
  setup.recompute = recompute;
  setup.compute = compute;
  return setup;
}

std::unique_ptr<Session> prepare(const TrainSettings& s, int ranks) {
  auto session = std::make_unique<Session>();
  if (s.init_from) session->init_from = open_source("init-from", *s.init_from);
  session->tokenizer = s.tokenizer.value_or(session->init_from ? session->init_from->tokenizer : "byte");
  session->model_config = choose_model(s, session->init_from);
  session->sequence_length = s.seq_len.value_or(session->model_config.sequence_length());
  session->model = session->model_config.build();
  load_data(s, *session);
  make_plan(s, ranks, *session);
  session->weight_decay = s.weight_decay.value_or(s.optimizer == "sgd" ? 0.0 : 0.01);
  session->optimizer = make_optimizer(s, session->weight_decay);
  session->compute = parse_dtype(s.dtype);
  CheckpointInfo& info = session->checkpoint_info;
  info.model = session->model_config.to_json();
  info.optimizer = {{"name", s.optimizer}};
  info.plan = {{"schedule", s.schedule},
               {"pp", session->layout.pp},
               {"micro_batches", session->plan.micro_batches},
               {"partition", layers_per_stage(session->model, session->partition)}};
  info.tokenizer = session->tokenizer;
  check_checkpoints(s, *session);
  check_memory(s, ranks, *session);
  return session;
}

}  // namespace penstock
