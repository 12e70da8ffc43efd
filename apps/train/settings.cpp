// Flags of penstock-train, in the groups of its --help.
#include "apps/train/settings.h"

#include "apps/common/model_file.h"
#include "parallel/pipeline/plan/recompute.h"

namespace penstock {
namespace {

constexpr Index most_threads = 4096;

}  // namespace

void TrainSettings::define(Command& root) {
  command = &root;
  const IntegerRange positive = at_least<Index>(1), counting = at_least<Index>(0);
  const NumberRange not_negative = at_least(0.0);
  root.example(
      "penstock-train --model gpt2-tiny --data book.txt --steps 200 --batch 16 --lr 1e-3 --log run.jsonl");

  root.group("Model");
  root.text(
      "model", model, "NAME|FILE.toml",
      "a bundled model (gpt2-tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-tiny), or a file with these "
      "flags as keys");
  root.text("init-from", init_from, "DIR",
            "Hugging Face directory or Penstock checkpoint to take model and weights from");
  const IntegerRange width = between<Index>(1, model_limits::width),
                     ids = between<Index>(1, model_limits::ids);
  root.integer("layers", layers, "transformer layers", between<Index>(1, model_limits::layers));
  root.integer("hidden", hidden, "width of the residual stream", width);
  root.integer("heads", heads, "attention heads", width);
  root.integer("kv-heads", kv_heads, "key/value heads", width);
  root.integer("ffn", ffn, "width of the feed-forward layer", between<Index>(1, model_limits::ffn));
  root.integer("vocab", vocab, "vocabulary; follows the tokenizer", ids);
  root.integer("seq-len", seq_len, "tokens of a sequence", ids);
  root.number("dropout", dropout, "dropout probability", from_below(0.0, 1.0));
  root.truth("tied-embeddings", tied_embeddings, "head and embedding share one table");
  root.not_yet("experts", "N", "experts of a layer");
  root.not_yet("experts-per-token", "K", "experts that a token goes to");
  root.not_yet("balance-loss", "C", "weight of the load-balancing loss");

  root.group("Data");
  root.texts("data", data, "PATH...", "text file, folder of text, or token file (.bin); repeatable");
  root.text("valid-data", valid_data, "PATH", "held-out data for --eval-every");
  root.number("valid-fraction", valid_fraction, "hold out this last part of the data instead",
              NumberRange{0, 1, true, true});
  root.text("tokenizer", tokenizer, "byte",
            "how text becomes tokens (default: that of --init-from, else byte)");
  root.choice("data-order", data_order, {"shuffled", "sequential"}, "order of the windows");
  root.not_yet("document-separator", "ID", "attention and targets stay inside a document");
  root.choice("token-dtype", token_dtype, {"auto", "uint16", "uint32"}, "ids of headerless token files");
  root.integer("ignore-target", ignore_target, "targets with this id do not count",
               between<Index>(0, model_limits::ids));

  root.group("Batch");
  root.integer("batch", batch, "sequences of an optimizer step, over all ranks",
               between<Index>(1, 10'000'000));
  root.integer("micro-batch", micro_batch,
               "sequences of a micro-batch (default: twice as many micro-batches as stages)", positive);

  root.group("Layout");
  root.integer("pp", pp, "pipeline ranks (default: 1)", positive);
  root.not_yet("tp", "N", "tensor-parallel ranks", {"1"});
  root.not_yet("dp", "N", "data-parallel ranks", {"1"});
  root.not_yet("cp", "N", "context-parallel ranks", {"1"});
  root.not_yet("ep", "N", "expert-parallel ranks", {"1"});
  root.not_yet("sequence-parallel", "", "sequence parallelism");
  root.not_yet("zero", "0|1|2|3", "sharded optimizer", {"0"});
  root.text_or_list("partition", partition, "auto|3,3,4,2", "transformer layers per stage");
  root.not_yet("memory-limit", "BYTES", "plan to stay under this", {"0"});
  root.not_yet("repartition", "auto|STEP:...", "move blocks while the run goes on");
  root.integer("ranks", ranks, "in-process ranks (threads), without mpirun", positive);

  root.group("Schedule");
  root.text("schedule", schedule, "NAME|FILE.csv", "pipeline schedule; penstock-schedule list shows them");
  root.not_yet("virtual-stages", "V", "chunks a rank holds", {"1"});
  root.text("recompute", recompute, "none|selective|full|N",
            "run the attention, all layers, or N layers of each stage again instead of keeping activations");
  root.not_yet("post-validation", "", "optimizer step before the norm is known");
  root.not_yet("vertical-sync", "", "pipedream: one version along the pipeline");
  root.not_yet("async-warmup", "N", "pipemare: synchronous steps first", {"0"});
  root.not_yet("lr-rescale", "N", "pipemare T1", {"0"});
  root.not_yet("discrepancy-correction", "D", "pipemare T2", {"0"});

  root.group("Optimizer");
  root.choice("optimizer", optimizer, {"adamw", "sgd"}, "both as in torch");
  root.number("momentum", momentum, "of sgd", from_below(0.0, 1.0));
  root.number("lr", lr, "learning rate", not_negative);
  root.number("min-lr", min_lr, "where the schedule ends", not_negative);
  root.integer("warmup", warmup, "steps of linear warm-up", counting);
  root.choice("lr-schedule", lr_schedule, {"constant", "linear", "cosine", "wsd"},
              "learning rate after warm-up");
  root.number(
      "weight-decay", weight_decay,
      "on parameters of two or more dimensions; decoupled in adamw (default: as in torch, 0.01 for adamw "
      "and 0 for sgd)",
      not_negative);
  root.number("beta1", beta1, "of adamw", from_below(0.0, 1.0));
  root.number("beta2", beta2, "of adamw", from_below(0.0, 1.0));
  root.number("eps", eps, "of adamw", more_than(0.0));
  root.number("clip", clip, "largest gradient norm; 0 is off", not_negative);

  root.group("Run");
  root.integer("steps", steps, "number of the last step", counting);
  root.integer("seed", seed, "of weights, dropout and data order", counting);
  root.choice("dtype", dtype, {"fp32", "bf16"},
              "of activations and of weights in use; master weights are fp32");
  root.not_yet("device", "cpu|cuda|cuda-host|auto", "where to compute", {"cpu", "auto"});
  root.integer("threads", threads, "compute threads of a rank (default: its CPUs shared by its ranks)",
               between<Index>(1, 1024));
  root.not_yet("profile", "", "time by op");
  root.boolean("deterministic", deterministic, "always on: results depend on nothing but the settings");
  root.number("deadline", deadline, "seconds that a rank waits for another before the run is stopped",
              more_than(0.0));

  root.group("Watch");
  root.text("log", log, "FILE.jsonl", "one JSON object a line: run, steps, evaluations, summary");
  root.text("trace", trace, "FILE.json", "Chrome trace of the last step");
  root.integer("eval-every", eval_every, "steps between evaluations; 0: none", counting);
  root.integer("eval-batches", eval_batches, "held-out batches of an evaluation", positive);
  root.text("dump-gradients", dump_gradients, "DIR", "write the first step's gradients");
  root.text("dump-parameters", dump_parameters, "DIR", "write the weights after the last step");
  root.boolean("dry-run", dry_run, "print plan, memory and schedule; allocate nothing");
  root.boolean("json", json, "one JSON document on stdout: the plan with --dry-run, else the summary");

  root.group("Keep");
  root.text("checkpoint-dir", checkpoint_dir, "DIR", "where checkpoints go");
  root.integer("save-every", save_every, "steps between checkpoints; 0: after the last step alone", counting);
  root.integer("keep", keep, "newest checkpoints that stay; 0: all", counting);
  root.boolean("resume", resume, "go on from the newest checkpoint");
}

void TrainSettings::check() const {
  require<ValueError>(!data.empty(),
                      "--data is missing: a text file, a folder of text, or a token file (.bin)");
  parse_recompute(recompute);
  const bool held_out = valid_data || valid_fraction;
  require<ValueError>(!(valid_data && valid_fraction), "--valid-data and --valid-fraction: give one of them");
  require<ValueError>(eval_every == 0 || held_out, "--eval-every {}: needs --valid-data or --valid-fraction",
                      eval_every);
  require<ValueError>(!micro_batch || *micro_batch <= batch, "--micro-batch {}: at most --batch {}",
                      micro_batch.value_or(0), batch);
  require<ValueError>(checkpoint_dir || !(command->given("save-every") || command->given("keep") || resume),
                      "--save-every, --keep and --resume: need --checkpoint-dir");
  require<ValueError>(momentum == 0 || optimizer == "sgd", "--momentum {}: belongs to --optimizer sgd",
                      momentum);
  require<ValueError>(dry_run || ranks.value_or(1) <= most_threads,
                      "--ranks {}: at most {} without --dry-run", ranks.value_or(1), most_threads);
  require<ValueError>(!tokenizer || *tokenizer == "byte", "--tokenizer {}: not yet; byte is built",
                      tokenizer.value_or(""));
}

}  // namespace penstock
