// What all MPI communicators of a process share: who we are, the side channel by which failures are heard of,
// and messages that nobody waits for any more. Private to parallel/comm.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/side_channel.h"

namespace penstock::mpi {

/// Throws CommError with MPI's words unless `code` is success.
void check(int code, const char* call);
std::string error_words(int code);

/// A message that MPI may still read or write. The core holds it, its memory included, until MPI has let go
/// of it.
class Activity {
 public:
  explicit Activity(MPI_Comm communicator) : communicator_(communicator) {}
  virtual ~Activity() = default;
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  /// Looks at the requests and starts what follows from them. Failures are kept for whoever waits.
  virtual void advance() = 0;
  /// True once no request is open.
  virtual bool ended() const = 0;
  /// Takes back a receive that nothing has come for.
  virtual void cancel() = 0;

  MPI_Comm communicator() const { return communicator_; }

 private:
  MPI_Comm communicator_;
};

class Core {
 public:
  explicit Core(Index piece_bytes);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Index piece_bytes() const { return piece_bytes_; }
  /// MPI's tags: the lower half is for envelopes, the same plus `payload_offset` for what follows them. At
  /// the upper end of the lower half lie those of collective tensors and of host messages; `max_tag` is the
  /// largest for callers.
  int payload_offset() const { return tag_limit_ / 2 + 1; }
  int max_tag() const { return payload_offset() - 3; }
  int collective_tag() const { return payload_offset() - 2; }
  int host_tag() const { return payload_offset() - 1; }

  /// Set by the side channel's thread and by this rank's abort.
  JobFailure& failure() { return failure_; }

  /// Opens the side channel. Collective over all ranks of the job.
  void open(const std::string& host, double deadline_seconds,
            std::function<void(const std::string& words)> on_stuck);
  /// Throws CommError when the job has failed.
  void poll();
  /// Fails the job here and tells the others; waits a moment for the words to leave.
  void abort(const std::string& reason) noexcept;
  /// Null in a job of one rank.
  SideChannel* channel() { return channel_.get(); }
  /// "; rank 2 has been silent for 2.8 s", or empty.
  std::string suspicion() const { return channel_ ? channel_->suspicion() : std::string(); }

  /// Holds an activity from its start to its end.
  void add(std::shared_ptr<Activity> activity) { active_.push_back(std::move(activity)); }
  /// Advances all activities of all groups, in the order of their start: whoever waits for one message serves
  /// the others, and messages under one tag pair up in their order.
  void advance();
  /// Cancels a group's receives; true when nothing of it is left.
  bool leave(MPI_Comm communicator);
  bool idle() const { return active_.empty(); }

  /// No MPI call from here on.
  void close() noexcept { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  int rank_ = 0, size_ = 1, tag_limit_ = 0;
  Index piece_bytes_;
  bool closed_ = false;
  JobFailure failure_;
  std::unique_ptr<SideChannel> channel_;
  std::vector<std::shared_ptr<Activity>> active_;
};

/// A group over an MPI communicator, which it takes over. `members`: rank in the job of each rank of the
/// group.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Core> core, MPI_Comm communicator,
                                                std::vector<int> members, double deadline_seconds);

}  // namespace penstock::mpi
