// Which tokens a step trains on: windows of a token row in an order that is a pure function of (seed, step,
// place in the global batch), whatever the layout, the micro-batches or a resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/token_row.h"

namespace penstock {

enum class DataOrder { sequential, shuffled };

/// "sequential" or "shuffled"; throws ValueError naming the flag --data-order for anything else.
DataOrder parse_data_order(std::string_view text);

/// Sequences first .. last - 1 of a step's global batch.
struct SequenceRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t size() const { return last - first; }
  friend bool operator==(const SequenceRange&, const SequenceRange&) = default;
};

/// Sequences of replica d of `replicas`: floor(d B / replicas) .. floor((d + 1) B / replicas) - 1 of a batch
/// of B. Throws ValueError unless 0 <= d < replicas <= B.
SequenceRange replica_sequences(std::int64_t batch, std::int64_t replicas, std::int64_t replica);

/// A permutation of 0 .. count - 1 from (seed, epoch) alone: Fisher and Yates' shuffle (Knuth, TAOCP
/// 2, 3.4.2, algorithm P) from the last place down; the draw for place i is 64-bit word i of the Philox
/// stream with key (seed, shuffle, "data-order") and step = epoch.
std::vector<std::int64_t> epoch_permutation(std::uint64_t seed, std::int64_t epoch, std::int64_t count);

struct SamplerOptions {
  std::int64_t sequence_length = 0;  ///< T
  std::int64_t batch = 0;            ///< B, sequences of a step over all ranks
  DataOrder order = DataOrder::shuffled;
  std::uint64_t seed = 0;
  std::optional<std::int32_t> ignore_target;  ///< targets with this id count in neither loss nor divisor
};

/// An object belongs to one thread: it keeps the permutation of the epochs it was last asked for.
class Sampler {
 public:
  /// What stands in the targets where one is ignored; the loss kernels know it.
  static constexpr std::int32_t ignored = -1;

  /// Throws ValueError unless T and B are positive and the row has a window (at least T + 1 tokens).
  Sampler(TokenRow row, const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  const TokenRow& row() const { return row_; }
  /// floor((n - 1) / T): windows of an epoch.
  std::int64_t windows() const { return windows_; }

  /// Window of sequence `sequence` (0 .. B - 1) of step `step` (from 1): number g = (step - 1) B + sequence,
  /// counted round and round over the epochs; shuffled, place g mod windows of epoch g / windows'
  /// permutation. Throws ValueError outside these ranges.
  std::int64_t window(std::int64_t step, std::int64_t sequence);

  /// Inputs (last - first, T) and targets (last - first, T) of sequences first .. last - 1 of a step: window
  /// i gives inputs iT .. iT+T-1 and targets iT+1 .. iT+T; an ignored target becomes -1. Throws ValueError
  /// for a range outside the batch.
  void fill(std::int64_t step, SequenceRange sequences, std::int32_t* inputs, std::int32_t* targets);

  /// Targets of the whole global batch of a step that count in the loss: its divisor. B T when none is
  /// ignored.
  std::int64_t valid_targets(std::int64_t step);

 private:
  const std::vector<std::int64_t>& permutation(std::int64_t epoch);

  TokenRow row_;
  SamplerOptions options_;
  std::int64_t windows_ = 0;
  struct Epoch {
    std::int64_t number = -1;
    std::vector<std::int64_t> order;
  };
  Epoch recent_[2];  // a step may straddle two epochs
  std::vector<std::int32_t> scratch_;
};

}  // namespace penstock
