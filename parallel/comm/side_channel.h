// SideChannel: how the ranks of a job learn that one of them has died, failed or stopped. It does not go
// through MPI, which notices neither: each rank has a TCP connection to rank 0 and a thread of its own that
// sends heartbeats over it. A connection that closes without a farewell is a death, one that falls silent is
// a stopped process or a lost machine, and a rank that gives up says why. Rank 0 tells the others; of its own
// end they learn by their connections to it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/failure.h"
#include "parallel/comm/socket.h"

namespace penstock {

class SideChannel {
 public:
  struct Options {
    int rank = 0, size = 1;
    std::string host = {};          ///< this machine, for the others' messages
    double deadline_seconds = 300;  ///< silence that counts as a failure; also the longest that joining takes
    double heartbeat_seconds = 0.2;
    /// Called on the channel's thread when the job has failed and this rank's own thread does not come to see
    /// it (it hangs in a long op, or inside MPI): `words` say what it was at and what has failed, and are
    /// empty when it saw the failure and hangs on its way out. Expected to end the process. Null: nothing
    /// happens.
    std::function<void(const std::string& words)> on_stuck = {};
    double notice_seconds = 0.5;  ///< given to see it; mpirun kills the survivors a second after a death
    double leave_seconds = 5;     ///< given to end once it was seen
  };

  /// Where the others find rank 0; the words of `Invitation` travel by any other way (an MPI broadcast).
  class Invitation {
   public:
    Invitation();
    const std::string& text() const { return text_; }

   private:
    friend class SideChannel;
    ListeningSocket socket_;
    std::string token_, text_;
  };

  /// Rank 0: waits until all others have joined. Failures are set in `failure`, which outlives the channel.
  /// Throws CommError naming the ranks that did not come.
  SideChannel(const Options& options, JobFailure& failure, Invitation invitation);
  /// The others. Throws CommError when rank 0 cannot be reached.
  SideChannel(const Options& options, JobFailure& failure, const std::string& invitation);
  /// Closes the connections. Without a `leave` before, the others take it for this rank's death.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  /// Fails the job with these words and tells the others; waits a moment until the words have left. Only the
  /// first failure of a job counts.
  void fail(const std::string& words) noexcept;
  /// From here on this rank's end, and silence of the others, is no failure.
  void leave() noexcept;
  /// After `leave`, and the last thing that a rank does: waits, at most the deadline, until no rank can be
  /// left behind unseen. The others wait until rank 0 has come here as well, rank 0 until their connections
  /// have closed; so a rank that comes here keeps its channel to the end of its process. Returns whom it
  /// waited for in vain, or nothing.
  std::string see_off() noexcept;
  /// The rank's own thread has seen the failure and is on its way out.
  void noticed() noexcept;

  void set_deadline_seconds(double seconds) noexcept;
  /// What the rank's own thread is at ("rank 1, stage 1, micro-batch 3: 1F3"), for `on_stuck`.
  void set_activity(std::string activity);
  /// "; rank 2 on host b has been silent for 2.8 s", for whoever has waited in vain; empty when all are
  /// heard.
  std::string suspicion() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
