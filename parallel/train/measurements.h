// What a run measures of its pipeline, and how it becomes the figures of the summary.
#pragma once

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/schedule/simulate.h"
#include "parallel/pipeline/schedule/timeline.h"

namespace penstock {

/// Actions of this rank, step by step, and their mean times.
class Measurements {
 public:
  Measurements(const Plan& plan, Communicator& pipeline);

  /// Takes the actions of a step, in seconds of this rank's clock.
  void add(const std::vector<TimedAction>& actions);

  /// Busy seconds of this rank within all steps.
  double busy_seconds() const { return busy_; }

  struct Result {
    double bubble_measured = 0, bubble_simulated = 0;
    std::vector<double> stage_seconds;
    Timeline measured, simulated;  ///< milliseconds
  };
  /// Gathers from all ranks; the same on each. `hop` in seconds. The first two steps are left out where there
  /// are more than four.
  Result summarize(double hop_seconds);

 private:
  struct Step {
    double first = 0, last = 0, busy = 0;
  };

  const Plan& plan_;
  Communicator& pipeline_;
  double offset_ = 0;  // of this rank's clock to rank 0's
  double busy_ = 0;
  std::vector<Step> steps_;
  std::vector<std::vector<double>> sums_, counts_;  // [kind][stage], of the steady steps so far
  std::vector<TimedAction> latest_;
};

/// Seconds to add to this rank's steady clock to get that of rank 0, by exchanging messages: the exchange
/// with the shortest round trip counts. Collective.
double clock_offset(Communicator& pipeline);

}  // namespace penstock
