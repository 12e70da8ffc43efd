// Settings of penstock-train: its flags, read and checked.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "models/config.h"

namespace penstock {

struct TrainSettings {
  // model
  std::string model = "gpt2-tiny";
  std::optional<std::string> init_from;
  std::optional<Index> layers, hidden, heads, kv_heads, ffn, vocab, seq_len;
  double dropout = 0;
  std::optional<bool> tied_embeddings;
  // data
  std::vector<std::string> data;
  std::optional<std::string> valid_data;
  std::optional<double> valid_fraction;
  std::optional<std::string> tokenizer;
  std::string data_order = "shuffled", token_dtype = "auto";
  std::optional<Index> ignore_target;
  // batch
  Index batch = 8;
  std::optional<Index> micro_batch;
  // layout
  std::optional<Index> pp;
  std::optional<Index> ranks;
  std::string partition = "auto";
  // schedule
  std::string schedule = "1f1b", recompute = "none", dtype = "fp32";
  // optimizer
  std::string optimizer = "adamw";
  double momentum = 0, lr = 1e-3, min_lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, clip = 1;
  std::optional<double> weight_decay;
  Index warmup = 0;
  std::string lr_schedule = "constant";
  // run
  Index steps = 100, seed = 0;
  std::optional<Index> threads;
  bool deterministic = false;
  double deadline = 300;
  // watch
  std::optional<std::string> log, trace, dump_gradients, dump_parameters;
  Index eval_every = 0, eval_batches = 8;
  bool dry_run = false, json = false;
  // keep
  std::optional<std::string> checkpoint_dir;
  Index save_every = 0, keep = 2;
  bool resume = false;

  Command* command = nullptr;

  /// Defines all flags.
  void define(Command& root);
  /// Checks what flags say of each other. Throws ValueError naming them.
  void check() const;
};

}  // namespace penstock
