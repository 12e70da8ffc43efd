// What ran when: the common form of a simulated and of a measured run, for drawing and for traces.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule/action.h"

namespace penstock {

struct TimedAction {
  Action action;
  double start = 0;  // in the timeline's unit, on one clock for all ranks
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;  // per rank, ascending by start
  std::string unit;                             // "s", "ms", ...; empty: units of cost
  double microseconds_per_unit = 1;             // for traces

  /// Earliest start and latest end over all ranks; 0 without any action.
  double first_start() const;
  double last_end() const;

  /// Idle share of the pipeline: 1 - (time in compute actions) / (ranks x (last compute end - first compute
  /// start)). Communication, waiting, reduction and optimizer count neither as busy nor into the span. NaN
  /// without compute.
  double bubble() const;
};

}  // namespace penstock
