// Watchdog: a limit for calls that have none of their own, such as MPI_Init.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace penstock {

/// Calls `expired` on a thread of its own unless the object is destroyed within `seconds`.
class Watchdog {
 public:
  Watchdog(double seconds, std::function<void()> expired)
      : thread_([this, seconds = seconds < 1e8 ? seconds : 1e8, expired = std::move(expired)] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; }))
            expired();
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace penstock
