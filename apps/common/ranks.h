// The ranks of a program: processes under mpirun or srun, threads under --ranks, or one alone.
#pragma once

#include <functional>
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
  explicit Ranks(Frame& frame);

  bool under_mpi() const { return mpi_.has_value(); }
  /// Ranks of the MPI job; 1 without MPI.
  int mpi_size() const { return mpi_ ? mpi_->size() : 1; }

  /// Runs the body as every rank of this process: once under MPI, else on `in_process` threads. Throws ValueError when
  /// `in_process` is given under MPI.
  void run(std::optional<Index> in_process, double deadline_seconds, const std::function<void(Communicator& world)>& body);

  /// Name of the machine.
  std::string host_name() const;

 private:
  std::optional<MpiWorld> mpi_;
};

/// Checks of input that every rank makes for itself: when one of them throws, all ranks throw the first one's message as a
/// ValueError. Collective.
void agree(Communicator& world, const std::function<void()>& checks);

/// CPUs of this rank's affinity mask divided by the ranks on its machine that have the same mask, at least 1. Collective.
int default_threads(Communicator& world, const std::string& host);

}  // namespace penstock
