// JobFailure: the one place of a job where "rank R cannot go on" is kept. Whoever learns of a failure (a
// rank's abort, a message from another process, a watcher thread) sets it; every wait looks at it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

namespace penstock {

class JobFailure {
 public:
  /// Sets the failure; only the first one counts. True when this was it. `rank`: who failed, -1 unknown.
  bool set(const std::string& reason, int rank) noexcept {
    const std::lock_guard lock(mutex_);
    if (set_.load(std::memory_order_relaxed)) return false;
    rank_ = rank;
    try {
      reason_ = reason;
    } catch (...) {
      // Out of memory: the fact without the words.
    }
    set_.store(true, std::memory_order_release);
    return true;
  }

  bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }

  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  /// Who failed; -1 when nobody did, or unknown.
  int rank() const {
    const std::lock_guard lock(mutex_);
    return rank_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> set_{false};
  std::string reason_;
  int rank_ = -1;
};

}  // namespace penstock
