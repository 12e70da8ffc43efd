// The library's Launch with the frame of a program: who prints, and which rank a failure is told of.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "apps/common/frame.h"
#include "parallel/comm/launch.h"

namespace penstock {

class Ranks {
 public:
  /// Joins the MPI job when a launcher started this process, and tells the frame which rank prints.
  /// Collective.
  explicit Ranks(Frame& frame);

  /// Ranks of the MPI job; 1 without MPI.
  int mpi_size() const { return launch_.size(); }

  /// Throws ValueError when --ranks is given under mpirun.
  void refuse_in_process(std::optional<Index> in_process) const { launch_.refuse_threads(in_process); }

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
  std::string host_name() const { return launch_.host_name(); }

 private:
  Frame& frame_;
  std::string failure_;  // what `run` threw, without this rank's number
  Launch launch_;
};

/// run_program for a program that has ranks. An error is told before this rank ends or the others hear of it:
/// a launcher kills them all at the first one that ends.
int run_program(const std::string& name, const std::function<int(Frame&, Ranks&)>& body);

}  // namespace penstock
