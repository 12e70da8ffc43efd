// The data order of training, as a pure function.
#include "data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/random.h"

namespace penstock {

DataOrder parse_data_order(std::string_view text) {
  if (text == "sequential") return DataOrder::sequential;
  if (text == "shuffled") return DataOrder::shuffled;
  throw ValueError("--data-order {}: allowed are shuffled, sequential", text);
}

SequenceRange replica_sequences(std::int64_t batch, std::int64_t replicas, std::int64_t replica) {
  require<ValueError>(0 <= replica && replica < replicas && replicas <= batch,
                      "replica {} of {} with a batch of {}: each replica needs a sequence", replica, replicas,
                      batch);
  return {checked_product(replica, batch) / replicas, checked_product(replica + 1, batch) / replicas};
}

std::vector<std::int64_t> epoch_permutation(std::uint64_t seed, std::int64_t epoch, std::int64_t count) {
  require<ValueError>(count >= 0, "permutation of {} elements", count);
  const RandomKey key = random_key(seed, RandomPurpose::shuffle, "data-order");
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::uint64_t place = order.size(); place-- > 1;) {
    const PhiloxBlock block = philox_block(key, narrow<std::uint32_t>(epoch), 0, place / 2);
    const std::size_t half = 2 * (place % 2);
    const std::uint64_t word = (std::uint64_t{block.word[half]} << 32) | block.word[half + 1];
    std::swap(order[place], order[random_below(word, place + 1)]);
  }
  return order;
}

Sampler::Sampler(TokenRow row, const SamplerOptions& options) : row_(std::move(row)), options_(options) {
  const std::int64_t length = options_.sequence_length;
  require<ValueError>(length > 0, "sequence length {} must be positive", length);
  require<ValueError>(options_.batch > 0, "batch {} must be positive", options_.batch);
  require<ValueError>(row_.size() > length,
                      "the data have {} tokens, too few for one window of {} inputs and their targets",
                      row_.size(), length);
  windows_ = (row_.size() - 1) / length;
}

const std::vector<std::int64_t>& Sampler::permutation(std::int64_t epoch) {
  Epoch& place = recent_[epoch % 2];
  if (place.number != epoch) {
    place.order = epoch_permutation(options_.seed, epoch, windows_);
    place.number = epoch;
  }
  return place.order;
}

std::int64_t Sampler::window(std::int64_t step, std::int64_t sequence) {
  require<ValueError>(step >= 1, "step {}: steps are counted from 1", step);
  require<ValueError>(sequence >= 0 && sequence < options_.batch, "sequence {} is outside a batch of {}",
                      sequence, options_.batch);
  const std::int64_t number = checked_product(step - 1, options_.batch) + sequence;
  const std::int64_t place = number % windows_;
  if (options_.order == DataOrder::sequential) return place;
  return permutation(number / windows_)[static_cast<std::size_t>(place)];
}

void Sampler::fill(std::int64_t step, SequenceRange sequences, std::int32_t* inputs, std::int32_t* targets) {
  require<ValueError>(
      0 <= sequences.first && sequences.first <= sequences.last && sequences.last <= options_.batch,
      "sequences {} .. {} are outside a batch of {}", sequences.first, sequences.last, options_.batch);
  const std::int64_t length = options_.sequence_length;
  scratch_.resize(static_cast<std::size_t>(length) + 1);
  for (std::int64_t sequence = sequences.first; sequence < sequences.last; ++sequence) {
    row_.copy(window(step, sequence) * length, length + 1, scratch_.data());
    inputs = std::copy(scratch_.begin(), scratch_.end() - 1, inputs);
    for (std::int64_t t = 1; t <= length; ++t) {
      const std::int32_t id = scratch_[static_cast<std::size_t>(t)];
      *targets++ = options_.ignore_target && id == *options_.ignore_target ? ignored : id;
    }
  }
}

std::int64_t Sampler::valid_targets(std::int64_t step) {
  const std::int64_t length = options_.sequence_length;
  if (!options_.ignore_target) return checked_product(options_.batch, length);
  std::int64_t valid = 0;
  scratch_.resize(static_cast<std::size_t>(length));
  for (std::int64_t sequence = 0; sequence < options_.batch; ++sequence) {
    row_.copy(window(step, sequence) * length + 1, length, scratch_.data());
    valid += length - std::count(scratch_.begin(), scratch_.end(), *options_.ignore_target);
  }
  return valid;
}

}  // namespace penstock
