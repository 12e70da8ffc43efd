// Communicator of in-process ranks, and the threads that run them.
#include "parallel/comm/thread_group.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/comm/thread_mailbox.h"

namespace penstock {
namespace {

using threads::Job;
using threads::Message;
using threads::Receipt;

class SendState final : public Work::State {
 public:
  SendState(std::shared_ptr<Job> job, std::shared_ptr<Message> message, int rank, int peer, int tag)
      : job_(std::move(job)), message_(std::move(message)), rank_(rank), peer_(peer), tag_(tag) {}

  bool test() override { return wait(0); }
  bool wait(double seconds) override {
    return job_->wait(rank_, peer_, seconds, [this] { return message_->taken; });
  }
  std::string describe() const override {
    return fmt::format("rank {} to take a message (tag {})", peer_, tag_);
  }

 private:
  std::shared_ptr<Job> job_;
  std::shared_ptr<Message> message_;
  int rank_, peer_, tag_;
};

class RecvState final : public Work::State {
 public:
  RecvState(std::shared_ptr<Job> job, std::shared_ptr<Receipt> receipt, int rank)
      : job_(std::move(job)), receipt_(std::move(receipt)), rank_(rank) {}

  bool test() override { return wait(0); }
  bool wait(double seconds) override {
    const bool complete = job_->wait(rank_, receipt_->source, seconds, [this] { return receipt_->complete; });
    if (complete && !receipt_->error.empty()) throw CommError(receipt_->error);
    return complete;
  }
  std::string describe() const override {
    return fmt::format("a message from rank {} (tag {}, {})", receipt_->source, receipt_->tag,
                       receipt_->expected.str());
  }

 private:
  std::shared_ptr<Job> job_;
  std::shared_ptr<Receipt> receipt_;
  int rank_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Job> job, int group, std::vector<int> members, int rank)
      : job_(std::move(job)), group_(group), members_(std::move(members)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int job_rank(int rank) const override { return members_[static_cast<std::size_t>(rank)]; }

  Work send(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) override {
    check_message(tensor, peer, tag);
    stream.synchronize();
    auto message = job_->send(group_, me(), job_rank(peer), tag, tensor, Envelope::of(header, tensor));
    return Work(std::make_shared<SendState>(job_, std::move(message), me(), job_rank(peer), tag));
  }

  Work recv(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) override {
    check_message(tensor, peer, tag);
    stream.synchronize();
    auto receipt = job_->recv(group_, job_rank(peer), me(), tag, tensor, Envelope::of(header, tensor));
    return Work(std::make_shared<RecvState>(job_, std::move(receipt), me()));
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const SplitPlan plan = plan_split(color, key);
    int first_group = rank_ == 0 ? job_->new_groups(plan.colors) : 0;
    broadcast(std::as_writable_bytes(std::span(&first_group, 1)), 0);
    std::vector<int> members;
    for (const int r : plan.members) members.push_back(job_rank(r));
    const int place =
        static_cast<int>(std::distance(plan.members.begin(), std::ranges::find(plan.members, rank_)));
    auto result =
        std::make_unique<ThreadCommunicator>(job_, first_group + plan.color_index, std::move(members), place);
    result->set_deadline_seconds(deadline_seconds());
    return result;
  }

  void abort(const std::string& reason) noexcept override {
    try {
      job_->abort(fmt::format("rank {}: {}", me(), reason), me());
    } catch (...) {  // out of memory for the words
      job_->abort({}, me());
    }
  }

  void progress() override { job_->progress(me()); }

 protected:
  void send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) override {
    try {
      job_->send_bytes(group_, me(), job_rank(peer), {bytes.begin(), bytes.end()});
    } catch (Error& error) {
      error.add_context(waiter(what));
      throw;
    }
  }

  std::vector<std::byte> recv_bytes(int peer, const std::string& what) override {
    std::vector<std::byte> bytes;
    bool complete = false;
    try {
      complete = job_->wait(me(), job_rank(peer), deadline_seconds(),
                            [&] { return job_->take_bytes(group_, job_rank(peer), me(), bytes); });
    } catch (Error& error) {
      error.add_context(waiter(what));
      throw;
    }
    require<CommError>(complete,
                       "{}: waited {} s for rank {}; it is down or stuck (--deadline sets this limit)",
                       waiter(what), deadline_seconds(), job_rank(peer));
    return bytes;
  }

 private:
  int me() const { return members_[static_cast<std::size_t>(rank_)]; }

  std::shared_ptr<Job> job_;
  int group_;
  std::vector<int> members_;  // job ranks, by rank of this group
  int rank_;
};

/// The words of an exception in flight.
std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

ThreadGroup::ThreadGroup(int ranks) : ranks_(ranks) {
  require<ValueError>(ranks >= 1, "a group of {} ranks; there must be at least 1", ranks);
  job_ = std::make_shared<Job>(ranks);
}

std::unique_ptr<Communicator> ThreadGroup::communicator(int rank) const {
  require<ValueError>(rank >= 0 && rank < ranks_, "rank {} of a group of {}", rank, ranks_);
  std::vector<int> members(static_cast<std::size_t>(ranks_));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<ThreadCommunicator>(job_, 0, std::move(members), rank);
}

void ThreadGroup::abort(const std::string& reason) const noexcept { job_->abort(reason, -1); }
void ThreadGroup::end_rank(int rank) const noexcept { job_->end_rank(rank); }
int ThreadGroup::failed_rank() const { return job_->failure().rank(); }

void run_ranks(int ranks, const std::function<void(Communicator&)>& body, double deadline_seconds) {
  const ThreadGroup group(ranks);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  const auto run = [&](int rank) {
    try {
      const std::unique_ptr<Communicator> communicator = group.communicator(rank);
      communicator->set_deadline_seconds(deadline_seconds);
      try {
        body(*communicator);
        group.end_rank(rank);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
        communicator->abort(words_of(std::current_exception()));
      }
    } catch (...) {
      failures[static_cast<std::size_t>(rank)] = std::current_exception();
      group.abort(fmt::format("rank {}: {}", rank, words_of(std::current_exception())));
    }
  };
  std::vector<std::thread> threads;
  std::exception_ptr no_thread;
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  } catch (...) {
    no_thread = std::current_exception();
    group.abort(fmt::format("no thread for a rank: {}", words_of(no_thread)));
  }
  for (std::thread& thread : threads) thread.join();
  if (no_thread) std::rethrow_exception(no_thread);

  // Who stopped the job is the cause; the others' failures follow from it.
  const int cause = group.failed_rank();
  if (cause >= 0 && failures[static_cast<std::size_t>(cause)])
    std::rethrow_exception(failures[static_cast<std::size_t>(cause)]);
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace penstock
