// The library's Launch with the frame of a program: who prints, and which rank a failure is told of.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/common/frame.h"
#include "parallel/comm/launch.h"

namespace penstock {

class Ranks {
 public:
  /// `name`: the program's, in front of its messages.
  Ranks(std::string name, Frame& frame) : name_(std::move(name)), frame_(frame) {}

  /// What a program says of its ranks once its flags are read.
  struct Wishes {
    double deadline_seconds = 300;                  ///< --deadline
    std::optional<Index> in_process = {};           ///< --ranks
    std::function<nlohmann::json()> settings = {};  ///< that all processes must have alike
  };

  /// Reads the flags (`read`), joins the MPI job when a launcher started this process, and tells the frame
  /// which rank prints. When `read` throws in one process, all of them throw that; also when their versions
  /// or settings differ. Collective, and the first thing that a program does.
  void join(const std::function<Wishes()>& read);

  /// Ranks of the MPI job; 1 without MPI.
  int mpi_size() const { return launch_->size(); }

  /// Checks that every process makes for itself: when they throw in one, all of them throw. Collective.
  void agree(const std::function<void()>& checks);

  /// Runs the body as every rank of this process: once under MPI, else on `in_process` threads (default 1).
  /// What it throws after work has started names the rank.
  void run(std::optional<Index> in_process, double deadline_seconds,
           const std::function<void(Communicator& world)>& body);

  /// Tells the other processes, if any, why this one ends: `reason`, or what `run` has thrown. The failure
  /// has been printed. Never throws.
  void abort(const std::string& reason) noexcept;

  /// Name of the machine.
  std::string host_name() const { return launch_->host_name(); }

 private:
  /// Throws ValueError, the same in all processes, naming the one whose version or setting is not rank 0's.
  void require_alike(Communicator& world, const nlohmann::json& settings) const;

  std::string name_;
  Frame& frame_;
  std::atomic<bool> told_ = false;  // this process has printed its failure
  std::string failure_;             // what `run` threw, without this rank's number
  std::optional<Launch> launch_;
};

/// run_program for a program that has ranks. An error is told before this rank ends or the others hear of it:
/// a launcher kills them all at the first one that ends.
int run_program(const std::string& name, const std::function<int(Frame&, Ranks&)>& body);

}  // namespace penstock
