// MpiWorld: the life of MPI in this process. One object a process; it initialises MPI, hands out the
// communicator of all ranks and finalises. The rest of Penstock sees MPI through this file alone.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace penstock {

/// True when a launcher (mpirun, srun) started this process as a rank of an MPI job, be it the only one.
/// Reads the environment alone, so it can be asked before MPI is initialised.
bool launched_by_mpi();

class MpiWorld {
 public:
  struct Options {
    /// Of collectives, of starting and finalising MPI, and the silence after which a rank counts as stopped.
    double deadline_seconds = 300;
    Index piece_bytes =
        Index{1} << 30;  ///< longer messages are sent in pieces of this size: MPI counts in int
    /// Called on another thread when this rank's own hangs: in a call of MPI that another rank does not join,
    /// or in whatever it is at while the job has failed. `words` say so; see SideChannel::Options. Expected
    /// to end the process; null leaves it to the launcher.
    std::function<void(const std::string& words)> on_stuck = {};
  };

  /// Initialises MPI. Throws ValueError when the environment says that there are N ranks and MPI sees this
  /// process alone; CommError when MPI is in use already or fails.
  explicit MpiWorld(const Options& options);
  MpiWorld() : MpiWorld(Options{}) {}
  /// Finalises MPI once all ranks have come here. After an abort, an exception that passes through, or when a
  /// rank does not come within the deadline, MPI is left as it is and the launcher ends the other ranks when
  /// this process ends.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const;
  int size() const;
  /// The group of all ranks. Collective; each call makes a group of its own. It must not outlive this object.
  std::unique_ptr<Communicator> world();
  /// Name of the machine that this rank runs on.
  const std::string& host_name() const;
  /// The limit from here on; communicators made before keep theirs.
  void set_deadline_seconds(double seconds);
  /// Ends every rank of the job at once with exit status `status`. Print first.
  [[noreturn]] void abort(int status) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
