// The ranks of a program: processes under mpirun or srun, threads under --ranks, or one alone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/frame.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_world.h"

namespace penstock {

class Ranks {
 public:
  /// Joins the MPI job when a launcher started this process, and tells the frame which rank prints.
  /// Collective.
  explicit Ranks(Frame& frame);

  /// Ranks of the MPI job; 1 without MPI.
  int mpi_size() const { return mpi_ ? mpi_->size() : 1; }

  /// Throws ValueError when --ranks is given under mpirun.
  void refuse_in_process(std::optional<Index> in_process) const;

  /// Checks that every process makes for itself, such as reading the command line: when they throw in one,
  /// all of them throw. Collective.
  void agree(const std::function<void()>& checks);

  /// Runs the body as every rank of this process: once under MPI, else on `in_process` threads (default 1).
  /// What it throws after work has started names the rank.
  void run(std::optional<Index> in_process, double deadline_seconds,
           const std::function<void(Communicator& world)>& body);

  /// Tells the other processes, if any, why this one ends: `reason`, or what `run` has thrown. Never throws.
  void abort(const std::string& reason) noexcept;

  /// Name of the machine.
  std::string host_name() const;

 private:
  Frame& frame_;
  std::string failure_;  // what `run` threw, without this rank's number
  std::optional<MpiWorld> mpi_;
  std::unique_ptr<Communicator> world_;  // null without MPI
};

/// run_program for a program that has ranks. An error is told before this rank ends or the others hear of it:
/// a launcher kills them all at the first one that ends.
int run_program(const std::string& name, const std::function<int(Frame&, Ranks&)>& body);

/// Checks of input that every rank makes for itself: when they throw Error or std::system_error on one of
/// them, all throw the messages' first as a ValueError. Collective.
void agree(Communicator& world, const std::function<void()>& checks);

/// CPUs of this rank's affinity mask divided by the ranks on its machine that have the same mask, at least 1.
/// Collective.
int default_threads(Communicator& world, const std::string& host);

}  // namespace penstock
