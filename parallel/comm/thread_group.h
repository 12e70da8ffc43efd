// In-process ranks: N threads of one process as a group of N ranks, without MPI. For `--ranks N`, tests and
// debuggers.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace penstock {

namespace threads {
class Job;
}

/// A job of `ranks` in-process ranks. Hand each rank's communicator to its thread; `run_ranks` does all of
/// it. A group of one is the communicator of a program that runs alone.
class ThreadGroup {
 public:
  /// Throws ValueError when `ranks` < 1.
  explicit ThreadGroup(int ranks);

  int size() const { return ranks_; }
  /// Rank `rank`'s end of the group of all. Throws ValueError when there is no such rank.
  std::unique_ptr<Communicator> communicator(int rank) const;
  /// Releases every wait in this group and all split off it, with CommError(reason). From any thread.
  void abort(const std::string& reason) const noexcept;
  /// Tells that a rank has left for good: waits for what it has not sent throw CommError. From any thread.
  void end_rank(int rank) const noexcept;
  /// The rank that called `abort` first; -1 when none did.
  int failed_rank() const;

 private:
  std::shared_ptr<threads::Job> job_;
  int ranks_;
};

/// Runs `body` once a rank, each on its own thread, and returns when all are done. When one throws, the
/// others are released (their waits throw CommError with "rank R: message") and the first failure is thrown
/// again as it was, type included.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body, double deadline_seconds = 300);

}  // namespace penstock
