// Polling with a deadline, for waits on what has no condition variable. Ranks may outnumber cores: the poller
// gives its core away, first by yielding and after a while by short sleeps.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace penstock {

/// Calls `ready` until it returns true (result true) or `seconds` have passed (false). It is called at least
/// once.
template <class Ready>
bool poll_until(Ready&& ready, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double yield_seconds = 0.002;  // a transfer of a few megabytes is over by then
  if (ready()) return true;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited < yield_seconds)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (ready()) return true;
    if (waited > seconds) return false;
  }
}

}  // namespace penstock
