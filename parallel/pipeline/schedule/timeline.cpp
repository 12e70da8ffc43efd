// Span and idle share of a timeline.
#include "parallel/pipeline/schedule/timeline.h"

#include <algorithm>
#include <limits>

namespace penstock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Visit>
void for_each(const Timeline& timeline, Visit&& visit) {
  for (const auto& line : timeline.ranks)
    for (const TimedAction& item : line) visit(item);
}

}  // namespace

double Timeline::first_start() const {
  double first = kInfinity;
  for_each(*this, [&](const TimedAction& item) { first = std::min(first, item.start); });
  return first == kInfinity ? 0 : first;
}

double Timeline::last_end() const {
  double last = -kInfinity;
  for_each(*this, [&](const TimedAction& item) { last = std::max(last, item.end); });
  return last == -kInfinity ? 0 : last;
}

double Timeline::bubble() const {
  double busy = 0;
  double first = kInfinity;
  double last = -kInfinity;
  for_each(*this, [&](const TimedAction& item) {
    if (!is_compute(item.action.kind)) return;
    busy += item.end - item.start;
    first = std::min(first, item.start);
    last = std::max(last, item.end);
  });
  const double span = static_cast<double>(ranks.size()) * (last - first);
  return span > 0 && span < kInfinity ? 1 - busy / span : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace penstock
