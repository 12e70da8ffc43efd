// The ranks of a program: processes under mpirun or srun, threads of one process, or one alone. The same body
// runs on all of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_world.h"

namespace penstock {

/// How `launch` starts ranks.
struct LaunchOptions {
  std::optional<Index> threads = {};  ///< ranks of this process, each a thread; absent: one. Not under mpirun
  double deadline_seconds = 300;      ///< the longest that a collective waits for another rank
};

/// Runs `body` as every rank of this process and returns when all of them are done: once where mpirun or srun
/// started the process as a rank of a job; otherwise on `options.threads` threads. When it throws, the ranks
/// of the job are released (their waits throw CommError with "rank R: message") and the first failure in this
/// process is thrown again as it was. Throws ValueError for threads under mpirun or fewer than one. At most
/// once in a process that runs under mpirun: MPI can be started once.
void launch(const LaunchOptions& options, const std::function<void(Communicator& world)>& body);

/// The two halves of `launch` apart, for programs that read flags and files in between.
class Launch {
 public:
  /// Joins the MPI job when a launcher started this process. Collective. Throws what MpiWorld throws.
  explicit Launch(const MpiWorld::Options& options = {});

  /// The ranks of the MPI job; null when no launcher started this process.
  Communicator* world() const { return world_.get(); }
  /// Ranks of the MPI job; 1 without.
  int size() const { return world_ ? world_->size() : 1; }
  /// Name of the machine.
  std::string host_name() const;

  /// Throws ValueError, naming --ranks, where threads are asked for under mpirun.
  void refuse_threads(std::optional<Index> threads) const;
  /// Runs the body as `launch` does, but the ranks of other processes hear of a failure only by `abort`.
  void run(const LaunchOptions& options, const std::function<void(Communicator& world)>& body);
  /// Tells the other processes, if any, why this one ends. Never throws.
  void abort(const std::string& reason) noexcept;

 private:
  std::optional<MpiWorld> mpi_;
  std::unique_ptr<Communicator> world_;  // null without MPI
};

/// Checks of input that every rank makes for itself: when they throw Error or std::system_error on one of
/// them, all throw the messages' first as a ValueError. Collective.
void agree(Communicator& world, const std::function<void()>& checks);

/// Name of this machine, as the system has it.
std::string local_host_name();

/// CPUs of this rank's affinity mask divided by the ranks on its machine that have the same mask, at least 1.
/// Collective.
int default_threads(Communicator& world, const std::string& host);

}  // namespace penstock
