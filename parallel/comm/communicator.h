// Communicator: point-to-point messages and collectives among the ranks of a group, with one interface for
// processes (MPI) and threads of one process. Nothing here waits without a deadline, and a failed rank
// releases every waiter.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace penstock {

/// What a message claims to be; the receiver's expectation is checked against it where there is a host
/// channel.
struct MessageHeader {
  std::int32_t stage = 0;        ///< stage at which the sending action sits
  std::int32_t micro_batch = 0;  ///< -1: not of a micro-batch
  std::int32_t direction = 0;    ///< 0 forward, 1 backward, 2 other
  std::int32_t part = 0;         ///< index of the tensor in a boundary of several

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

/// A communication in progress. It keeps its tensor alive. Copies share the state.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// Moves things along; true once complete. Throws CommError when it failed.
    virtual bool test() = 0;
    /// The same, holding the host for up to `seconds` until it is complete. By default: polls.
    virtual bool wait(double seconds);
    /// What is going on and with which rank, such as "a message from rank 0 (tag 5)": for error messages.
    virtual std::string describe() const = 0;
    /// "; rank 2 has been silent for 2.8 s", where that is known of anyone: for whoever has waited in vain.
    virtual std::string suspicion() const { return {}; }
  };

  Work() = default;  ///< complete
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool test() {
    if (state_ && state_->test()) state_.reset();
    return state_ == nullptr;
  }
  /// Holds the host until complete. Throws CommError, with `waiter` (such as "rank 1, stage 1, micro-batch 3:
  /// 1RECV_F3") in the message, when the peer failed or `deadline_seconds` passed.
  void host_wait(double deadline_seconds, const std::string& waiter);

 private:
  std::shared_ptr<State> state_;
};

/// One rank's end of a group. It belongs to the rank's thread: no two threads may be inside it at once.
class Communicator {
 public:
  static constexpr int max_tag = 1 << 28;             ///< largest tag that callers may use
  static constexpr int collective_tag = max_tag + 1;  ///< of the tensors that collectives send

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Number of this group's rank `rank` in the whole job: the one that messages to people name.
  virtual int job_rank(int rank) const = 0;

  /// Starts sending a contiguous tensor; it must not be written until the work is complete. Messages between
  /// two ranks match by tag (0 .. max_tag); of one tag they arrive in the order sent. Runs behind what is
  /// queued on `stream`. Never holds the host; whether the work can be complete before the receiver has asked
  /// for the message is left open.
  virtual Work send(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) = 0;
  /// Starts receiving into a contiguous tensor of exactly the size sent. A message with another header, dtype
  /// or shape fails the work with CommError that names both. Kernels on `stream` queued after `host_wait` see
  /// the data.
  virtual Work recv(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) = 0;

  /// Ranks with the same color (0 or more) become one group, ordered by (key, rank). Collective.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Tells every rank of the whole job that this one cannot go on: their waits throw CommError with "rank R:
  /// reason", and so do the later ones of this rank. The first reason stands. Never throws.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// What this rank is at, such as "rank 1, stage 1, micro-batch 3: 1F3": told when it hangs there while the
  /// job has failed.
  virtual void set_activity(const std::string&) {}

  /// Moves messages in the background along; called between ops (Open MPI has no progress thread). Throws
  /// CommError when the job was aborted.
  virtual void progress() = 0;

  // Collectives on host bytes, made of the messages above in an order that depends on the group's size alone:
  // results are the same at every run. All ranks must call them in the same order. Sizes that must agree and
  // do not: CommError with both.
  void barrier();
  /// rank `root`'s bytes on every rank.
  void broadcast(std::span<std::byte> bytes, int root);
  /// `mine` of every rank, by rank; sizes may differ.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);
  std::vector<std::string> all_gather(const std::string& mine);
  /// Element by element over the ranks, ascending by rank from 0. A NaN of any rank stays a NaN in both.
  void all_reduce_sum(std::span<double> values);
  void all_reduce_max(std::span<double> values);
  /// Sums contiguous fp32 tensors of one shape over the ranks, ascending by rank, in place; the same bits on
  /// every rank. The workspace is a bounded piece of the tensor's own memory kind `communication`.
  void all_reduce_sum(const Tensor& tensor, Stream& stream);

  double deadline_seconds() const { return deadline_seconds_; }
  /// The longest that a collective waits for another rank; groups split off later inherit it.
  void set_deadline_seconds(double seconds) {
    require<ValueError>(seconds > 0, "the deadline is {} s; it must be above 0", seconds);
    deadline_seconds_ = seconds;
  }

 protected:
  Communicator() = default;

  /// Blocking host messages under the collectives, in order between two ranks; empty ones are allowed. `what`
  /// names the collective in errors.
  virtual void send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) = 0;
  virtual std::vector<std::byte> recv_bytes(int peer, const std::string& what) = 0;

  /// What a split comes to: ranks of this group in the order of the new one, and which of the distinct colors
  /// it is.
  struct SplitPlan {
    std::vector<int> members;
    int color_index = 0;
    int colors = 0;
  };
  SplitPlan plan_split(int color, int key);

  /// Throws ValueError, ShapeError or DeviceError unless the tensor can be a message to or from `peer` under
  /// `tag`.
  void check_message(const Tensor& tensor, int peer, int tag) const;

  /// "rank 2, barrier"
  std::string waiter(const std::string& what) const;

 private:
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, const std::string& what);
  void reduce(std::span<double> values, double (*combine)(double, double), const std::string& what);
  void broadcast(std::span<std::byte> bytes, int root, const std::string& what);

  double deadline_seconds_ = 300;
};

}  // namespace penstock
