// Matching and copying of messages between in-process ranks.
#include "parallel/comm/thread_mailbox.h"

#include <cstring>
#include <utility>

namespace penstock::threads {
namespace {

template <class Queues>
auto take_first(Queues& queues, const MatchKey& key) {
  typename Queues::mapped_type::value_type first{};
  if (const auto it = queues.find(key); it != queues.end()) {
    first = std::move(it->second.front());
    it->second.pop_front();
    if (it->second.empty()) queues.erase(it);
  }
  return first;
}

}  // namespace

void Job::abort(const std::string& reason, int rank) noexcept {
  failure_.set(reason, rank);
  const std::lock_guard lock(mutex_);  // nobody is between looking and going to sleep
  for (Mailbox& box : mailboxes_) box.changed.notify_all();
}

void Job::end_rank(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  mailbox(rank).ended = true;
  for (Mailbox& box : mailboxes_) box.changed.notify_all();
}

void Job::check(int peer) {
  if (failure_.is_set()) throw CommError(failure_.reason());
  if (mailbox(peer).ended) throw CommError("rank {} has ended", peer);
}

std::shared_ptr<Message> Job::send(int group, int from, int to, int tag, const Tensor& tensor,
                                   const Envelope& envelope) {
  const auto message = std::make_shared<Message>(Message{tensor, envelope});
  const MatchKey key{group, from, tag};
  const std::lock_guard lock(mutex_);
  Mailbox& box = mailbox(to);
  if (auto receipt = take_first(box.receipts, key)) {
    receipt->match = message;
    box.matched.push_back(std::move(receipt));
    box.changed.notify_all();
  } else {
    box.messages[key].push_back(message);
  }
  return message;
}

std::shared_ptr<Receipt> Job::recv(int group, int from, int to, int tag, const Tensor& tensor,
                                   const Envelope& expected) {
  const auto receipt = std::make_shared<Receipt>();
  receipt->target = tensor;
  receipt->expected = expected;
  receipt->source = from;
  receipt->tag = tag;
  const MatchKey key{group, from, tag};
  const std::lock_guard lock(mutex_);
  Mailbox& box = mailbox(to);
  if (auto message = take_first(box.messages, key)) {
    receipt->match = std::move(message);
    box.matched.push_back(receipt);
  } else {
    box.receipts[key].push_back(receipt);
  }
  return receipt;
}

void Job::copy_matched(int rank, std::unique_lock<std::mutex>& lock) {
  Mailbox& box = mailbox(rank);
  while (!box.matched.empty()) {
    const std::shared_ptr<Receipt> receipt = std::move(box.matched.front());
    box.matched.pop_front();
    const Message& message = *receipt->match;
    lock.unlock();
    std::string error;
    if (message.envelope != receipt->expected)
      error = mismatch_message(message.envelope, receipt->expected, receipt->source, receipt->tag);
    else if (message.source.bytes() > 0)
      std::memmove(receipt->target.data(), message.source.data(),
                   static_cast<std::size_t>(message.source.bytes()));
    lock.lock();
    receipt->error = std::move(error);
    receipt->complete = true;
    receipt->match->taken = true;
    receipt->match.reset();  // under the lock, so that the sender's work is the last to let go of its tensor
    mailbox(receipt->source).changed.notify_all();
  }
}

void Job::progress(int rank) {
  std::unique_lock lock(mutex_);
  copy_matched(rank, lock);
  if (failure_.is_set()) throw CommError(failure_.reason());
}

void Job::send_bytes(int group, int from, int to, std::vector<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  check(to);
  Mailbox& box = mailbox(to);
  box.host_messages[{group, from, 0}].push_back(std::move(bytes));
  box.changed.notify_all();
}

bool Job::take_bytes(int group, int from, int to, std::vector<std::byte>& bytes) {
  Mailbox& box = mailbox(to);
  const MatchKey key{group, from, 0};
  if (!box.host_messages.contains(key)) return false;
  bytes = take_first(box.host_messages, key);
  return true;
}

}  // namespace penstock::threads
