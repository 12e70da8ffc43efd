// The state that in-process ranks share: who sent what to whom, who waits for what, who has failed. A message
// is matched under one lock; the receiver copies it outside of the lock, straight from the sender's tensor
// into its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/comm/envelope.h"
#include "parallel/comm/failure.h"

namespace penstock::threads {

/// A message on its way: the sender's half and, once asked for, the receiver's.
struct Message {
  Tensor source;
  Envelope envelope;
  bool taken = false;  ///< the receiver has its copy
};

struct Receipt {
  Tensor target;
  Envelope expected;
  int source = 0;  ///< job rank
  int tag = 0;
  std::shared_ptr<Message> match;
  bool complete = false;
  std::string error;
};

/// Group, sending job rank, tag.
using MatchKey = std::tuple<int, int, int>;

/// All of this is guarded by the job's mutex.
struct Mailbox {
  std::condition_variable changed;
  std::map<MatchKey, std::deque<std::shared_ptr<Message>>> messages;     // not asked for yet
  std::map<MatchKey, std::deque<std::shared_ptr<Receipt>>> receipts;     // not sent yet
  std::deque<std::shared_ptr<Receipt>> matched;                          // to be copied by this rank
  std::map<MatchKey, std::deque<std::vector<std::byte>>> host_messages;  // of collectives
  bool ended = false;                                                    // the rank sends nothing any more
};

class Job {
 public:
  explicit Job(int ranks) : mailboxes_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(mailboxes_.size()); }
  JobFailure& failure() { return failure_; }

  /// Sets the failure and wakes everyone.
  void abort(const std::string& reason, int rank) noexcept;
  /// Rank `rank` has left: who waits for a message that it has not sent fails.
  void end_rank(int rank) noexcept;

  std::shared_ptr<Message> send(int group, int from, int to, int tag, const Tensor& tensor,
                                const Envelope& envelope);
  std::shared_ptr<Receipt> recv(int group, int from, int to, int tag, const Tensor& tensor,
                                const Envelope& expected);
  void send_bytes(int group, int from, int to, std::vector<std::byte> bytes);

  /// Copies what has arrived for `rank`. Throws CommError when the job has failed.
  void progress(int rank);

  /// Up to `seconds` until `done()`, asked under the lock, is true; copies meanwhile what arrives for `rank`.
  /// Throws CommError when the job has failed, or when rank `peer`, which alone could make it true, has
  /// ended.
  template <class Done>
  bool wait(int rank, int peer, double seconds, Done&& done) {
    using Clock = std::chrono::steady_clock;
    const double bounded = seconds < 1e8 ? seconds : 1e8;
    const auto until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bounded));
    std::unique_lock lock(mutex_);
    for (bool late = seconds <= 0;;
         late = mailbox(rank).changed.wait_until(lock, until) == std::cv_status::timeout) {
      copy_matched(rank, lock);
      if (done()) return true;
      check(peer);
      if (late) return false;
    }
  }

  /// Takes the next host message, if there is one. Only inside `wait`.
  bool take_bytes(int group, int from, int to, std::vector<std::byte>& bytes);

  /// `count` group numbers in a row that nobody has.
  int new_groups(int count) { return next_group_.fetch_add(count); }

 private:
  Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }
  void copy_matched(int rank, std::unique_lock<std::mutex>& lock);
  void check(int peer);

  std::mutex mutex_;
  std::vector<Mailbox> mailboxes_;
  JobFailure failure_;
  std::atomic<int> next_group_{1};
};

}  // namespace penstock::threads
