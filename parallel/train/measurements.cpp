// Measurements: mean stage times, bubble, and the clocks of the ranks.
#include "parallel/train/measurements.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock {
namespace {

constexpr std::size_t warm_up_steps = 2;  // left out of averages: caches, first use of memory and primitives
constexpr ActionKind timed_kinds[] = {ActionKind::F, ActionKind::B, ActionKind::I, ActionKind::W};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t index_of(ActionKind kind) {
  return static_cast<std::size_t>(std::find(std::begin(timed_kinds), std::end(timed_kinds), kind) -
                                  std::begin(timed_kinds));
}

std::span<const std::byte> bytes_of(const std::vector<double>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<double> doubles_of(const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

double clock_offset(Communicator& pipeline) {
  // Every round: all tell their clock at one barrier's end. The spread of a barrier is far below a
  // millisecond on one machine and about the network's delay on several; the best of some rounds is taken.
  constexpr int rounds = 5;
  double offset = 0, best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const double before = seconds_now();
    pipeline.barrier();
    const double after = seconds_now();
    const std::vector<double> mine{(before + after) / 2, after};
    const std::vector<std::vector<std::byte>> all = pipeline.all_gather(bytes_of(mine));
    if (after - before >= best) continue;
    best = after - before;
    offset = doubles_of(all[0])[1] - after;
  }
  return offset;
}

Measurements::Measurements(const Plan& plan, Communicator& pipeline)
    : plan_(plan),
      pipeline_(pipeline),
      offset_(clock_offset(pipeline)),
      sums_(std::size(timed_kinds), std::vector<double>(static_cast<std::size_t>(plan.stages), 0.0)),
      counts_(sums_) {}

void Measurements::add(const std::vector<TimedAction>& actions) {
  latest_ = actions;
  Step step;
  if (steps_.size() <= warm_up_steps)  // forget the warm-up once there is something steady
    for (auto* table : {&sums_, &counts_})
      for (std::vector<double>& row : *table) std::fill(row.begin(), row.end(), 0.0);
  for (const TimedAction& a : actions) {
    const std::size_t kind = index_of(a.action.kind);
    if (kind < std::size(timed_kinds)) {
      sums_[kind][static_cast<std::size_t>(a.action.stage)] += a.end - a.start;
      counts_[kind][static_cast<std::size_t>(a.action.stage)] += 1;
    }
    step.busy += a.end - a.start;
  }
  if (!actions.empty()) {
    step.first = actions.front().start + offset_;
    step.last = actions.back().end + offset_;
  }
  busy_ += step.busy;
  steps_.push_back(step);
}

Measurements::Result Measurements::summarize(double hop_seconds) {
  Result result;
  // Bubble: idle / total between the first start and the last end over all ranks, summed over the steady
  // steps.
  std::vector<double> mine;
  for (const Step& s : steps_) mine.insert(mine.end(), {s.first, s.last, s.busy});
  const auto steps = pipeline_.all_gather(bytes_of(mine));
  const std::size_t skip = steps_.size() > 2 * warm_up_steps ? warm_up_steps : 0;
  double total = 0, busy = 0;
  for (std::size_t s = skip; s < steps_.size(); ++s) {
    double first = std::numeric_limits<double>::infinity(), last = -first;
    for (const std::vector<std::byte>& rank : steps) {
      const std::vector<double> values = doubles_of(rank);
      first = std::min(first, values[3 * s]);
      last = std::max(last, values[3 * s + 1]);
      busy += values[3 * s + 2];
    }
    total += (last - first) * static_cast<double>(steps.size());
  }
  result.bubble_measured = total > 0 ? 1 - busy / total : 0.0;

  const std::vector<double> my_busy{busy_};
  for (const auto& rank : pipeline_.all_gather(bytes_of(my_busy)))
    result.stage_seconds.push_back(doubles_of(rank)[0]);

  // Mean time of each kind at each stage, in milliseconds.
  std::vector<std::vector<double>> mean;
  for (std::size_t k = 0; k < std::size(timed_kinds); ++k) {
    std::vector<double> sums = sums_[k], counts = counts_[k];
    pipeline_.all_reduce_sum(std::span<double>(sums));
    pipeline_.all_reduce_sum(std::span<double>(counts));
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] = counts[s] > 0 ? 1e3 * sums[s] / counts[s] : 0.0;
    mean.push_back(std::move(sums));
  }
  CostModel costs;
  costs.f = mean[0];
  costs.hop = 1e3 * hop_seconds;
  const bool split = std::any_of(mean[2].begin(), mean[2].end(), [](double t) { return t > 0; });
  costs.i = split ? mean[2] : mean[1];  // B costs i + w
  costs.w = split ? mean[3] : std::vector<double>(mean[1].size(), 0.0);
  const Simulation simulation = simulate(plan_, costs);
  result.simulated = simulation.timeline;
  result.simulated.unit = "ms";
  result.simulated.microseconds_per_unit = 1000;
  result.bubble_simulated = simulation.bubble_total;

  // The last step's actions of all ranks, on rank 0's clock from the first start.
  std::string text;
  for (const TimedAction& a : latest_)
    text += fmt::format("{} {:.17g} {:.17g}\n", to_text(a.action), a.start + offset_, a.end + offset_);
  result.measured.unit = "ms";
  result.measured.microseconds_per_unit = 1000;
  for (const std::string& rank : pipeline_.all_gather(text)) {
    std::vector<TimedAction> actions;
    for (std::size_t at = 0; at < rank.size();) {
      const std::size_t end = rank.find('\n', at);
      const std::string line = rank.substr(at, end - at);
      const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
      actions.push_back({parse_action(line.substr(0, first)), std::stod(line.substr(first + 1)),
                         std::stod(line.substr(second + 1))});
      at = end + 1;
    }
    result.measured.ranks.push_back(std::move(actions));
  }
  const double origin = result.measured.first_start();
  for (auto& rank : result.measured.ranks)
    for (TimedAction& a : rank) a = {a.action, 1e3 * (a.start - origin), 1e3 * (a.end - origin)};
  return result;
}

}  // namespace penstock
