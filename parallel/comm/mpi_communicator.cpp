// Communicator over MPI: Isend and Irecv, an envelope in front of each tensor, tests instead of waits.
#include <algorithm>
#include <map>
#include <utility>

#include "parallel/comm/envelope.h"
#include "parallel/comm/mpi_core.h"
#include "parallel/comm/polling.h"

namespace penstock::mpi {
namespace {

/// Calls `start(address, count, request)` for each piece of `bytes` bytes at `data`; once, with nothing, for
/// no bytes.
template <class Start>
void in_pieces(std::byte* data, Index bytes, Index piece_bytes, std::vector<MPI_Request>& requests,
               Start&& start) {
  Index begin = 0;
  do {
    const Index count = std::min(piece_bytes, bytes - begin);
    requests.push_back(MPI_REQUEST_NULL);
    check(start(data + begin, static_cast<int>(count), &requests.back()), "MPI_Isend or MPI_Irecv");
    begin += count;
  } while (begin < bytes);
}

/// A tensor on its way out or in: an envelope, and under a tag of its own the payload in pieces. The receiver
/// asks for the payload once it has seen an envelope that fits (a longer message than asked for would be an
/// error inside MPI, and Open MPI 4.1 crashes on it over shared memory); a payload that does not fit goes to
/// scratch memory, so that the next message pairs up again.
class Transfer final : public Work::State, public Activity {
 public:
  Transfer(std::shared_ptr<Core> core, MPI_Comm communicator, bool receives, int peer, int peer_name, int tag,
           int tag_name, const Envelope& envelope, const Tensor& tensor)
      : Activity(communicator),
        core_(std::move(core)),
        receives_(receives),
        peer_(peer),
        peer_name_(peer_name),
        tag_(tag),
        tag_name_(tag_name),
        envelope_(envelope),
        incoming_(envelope),
        tensor_(tensor) {}

  /// The receive posted before this one under the same peer and tag. Their envelopes complete in this order,
  /// but may be seen complete in the other one; the payloads must be asked for in order.
  void set_behind(std::weak_ptr<Transfer> previous) { previous_ = std::move(previous); }
  bool awaits_envelope() const { return next_ == 0; }

  /// Throws CommError when MPI refuses.
  void start() {
    start_requests(reinterpret_cast<std::byte*>(&incoming_), sizeof incoming_, sizeof incoming_, tag_);
    if (!receives_) start_payload(static_cast<std::byte*>(tensor_.data()), tensor_.bytes());
  }

  bool test() override {
    if (!complete_ && error_.empty()) core_->advance();
    if (!error_.empty()) throw CommError(error_);
    if (!complete_) core_->poll();
    return complete_;
  }

  std::string describe() const override {
    return fmt::format("{} (tag {}, {})",
                       receives_ ? fmt::format("a message from rank {}", peer_name_)
                                 : fmt::format("rank {} to take a message", peer_name_),
                       tag_name_, envelope_.str());
  }

  std::string suspicion() const override { return core_->suspicion(); }

  void advance() override {
    if (next_ == 0)
      if (const auto previous = previous_.lock(); previous && previous->awaits_envelope()) return;
    while (next_ < requests_.size()) {
      int flag = 0;
      MPI_Status status{};
      const int code = MPI_Test(&requests_[next_], &flag, &status);
      if (code == MPI_SUCCESS && flag == 0) return;
      if (code != MPI_SUCCESS) requests_[next_] = MPI_REQUEST_NULL;
      const std::size_t done = next_++;
      if (code != MPI_SUCCESS)
        fail(fmt::format("{} failed: {}", describe(), error_words(code)));
      else if (receives_)
        examine(done, status);
    }
    if (!complete_) {
      complete_ = error_.empty();
      tensor_ = Tensor();
      scratch_ = {};
    }
  }

  bool ended() const override { return next_ == requests_.size(); }

  void cancel() override {
    if (receives_ && next_ == 0 && !requests_.empty()) MPI_Cancel(&requests_.front());
  }

 private:
  void start_requests(std::byte* data, Index bytes, Index piece_bytes, int tag) {
    in_pieces(data, bytes, piece_bytes, requests_, [&](std::byte* piece, int count, MPI_Request* request) {
      return receives_ ? MPI_Irecv(piece, count, MPI_BYTE, peer_, tag, communicator(), request)
                       : MPI_Isend(piece, count, MPI_BYTE, peer_, tag, communicator(), request);
    });
  }

  void start_payload(std::byte* data, Index bytes) {
    payload_bytes_ = bytes;
    start_requests(data, bytes, core_->piece_bytes(), tag_ + core_->payload_offset());
  }

  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }

  /// Looks at request number `done` of a receive, which is complete.
  void examine(std::size_t done, MPI_Status& status) {
    int cancelled = 0, received = 0;
    MPI_Test_cancelled(&status, &cancelled);
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (cancelled != 0) return fail(fmt::format("{} was given up", describe()));
    const Index expected =
        done == 0 ? static_cast<Index>(sizeof incoming_)
                  : std::min(core_->piece_bytes(),
                             payload_bytes_ - static_cast<Index>(done - 1) * core_->piece_bytes());
    if (received != expected)
      return fail(fmt::format("{} brought {} bytes where {} belong", describe(), received, expected));
    if (done > 0) return;
    try {
      if (incoming_ == envelope_)
        return start_payload(static_cast<std::byte*>(tensor_.data()), tensor_.bytes());
      fail(mismatch_message(incoming_, envelope_, peer_name_, tag_name_));
      scratch_.resize(static_cast<std::size_t>(incoming_.bytes()));
      start_payload(scratch_.data(), incoming_.bytes());
    } catch (const std::exception& error) {
      fail(fmt::format("{}: {}", describe(), error.what()));
    }
  }

  std::shared_ptr<Core> core_;
  std::weak_ptr<Transfer> previous_;
  bool receives_;
  int peer_, peer_name_, tag_, tag_name_;  // as MPI knows them, and as people do: job rank, the caller's tag
  Envelope envelope_, incoming_;
  Tensor tensor_;
  std::vector<std::byte> scratch_;
  Index payload_bytes_ = 0;
  std::vector<MPI_Request> requests_;
  std::size_t next_ = 0;  // first request not known to be complete
  bool complete_ = false;
  std::string error_;
};

/// Bytes of a collective, with their number in front.
class HostMessage final : public Activity {
 public:
  HostMessage(MPI_Comm communicator, bool receives, int peer, int tag, Index piece_bytes)
      : Activity(communicator), receives_(receives), peer_(peer), tag_(tag), piece_bytes_(piece_bytes) {}

  void start_length() { start(reinterpret_cast<std::byte*>(&length), sizeof length, sizeof length); }
  void start_bytes() {
    if (bytes.empty()) return;
    start(bytes.data(), static_cast<Index>(bytes.size()), piece_bytes_);
  }

  void advance() override {
    while (next_ < requests_.size()) {
      int flag = 0;
      const int code = MPI_Test(&requests_[next_], &flag, MPI_STATUS_IGNORE);
      if (code == MPI_SUCCESS && flag == 0) return;
      if (code != MPI_SUCCESS) {
        requests_[next_] = MPI_REQUEST_NULL;
        error = error_words(code);
      }
      ++next_;
    }
  }
  bool ended() const override { return next_ == requests_.size(); }
  void cancel() override {
    if (receives_ && next_ < requests_.size()) MPI_Cancel(&requests_[next_]);
  }

  std::uint64_t length = 0;
  std::vector<std::byte> bytes;
  std::string error;

 private:
  void start(std::byte* data, Index count, Index piece) {
    in_pieces(data, count, piece, requests_, [&](std::byte* address, int part, MPI_Request* request) {
      return receives_ ? MPI_Irecv(address, part, MPI_BYTE, peer_, tag_, communicator(), request)
                       : MPI_Isend(address, part, MPI_BYTE, peer_, tag_, communicator(), request);
    });
  }

  bool receives_;
  int peer_, tag_;
  Index piece_bytes_;
  std::vector<MPI_Request> requests_;
  std::size_t next_ = 0;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Core> core, MPI_Comm communicator, std::vector<int> members,
                  double deadline)
      : core_(std::move(core)), communicator_(communicator), members_(std::move(members)) {
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
    set_deadline_seconds(deadline);
  }

  ~MpiCommunicator() override {
    if (core_->closed()) return;
    if (core_->leave(communicator_) && !core_->failure().is_set()) MPI_Comm_free(&communicator_);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int job_rank(int rank) const override { return members_[static_cast<std::size_t>(rank)]; }

  Work send(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) override {
    return start(false, tensor, peer, tag, header, stream);
  }
  Work recv(const Tensor& tensor, int peer, int tag, const MessageHeader& header, Stream& stream) override {
    return start(true, tensor, peer, tag, header, stream);
  }

  /// MPI_Comm_split has no form that does not wait, so it is entered only when all ranks are known to stand
  /// before it.
  std::unique_ptr<Communicator> split(int color, int key) override {
    const SplitPlan plan = plan_split(color, key);
    barrier();
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(communicator_, color, key, &part), "MPI_Comm_split");
    std::vector<int> members;
    for (const int r : plan.members) members.push_back(job_rank(r));
    return make_communicator(core_, part, std::move(members), deadline_seconds());
  }

  void abort(const std::string& reason) noexcept override {
    try {
      core_->abort(fmt::format("rank {}: {}", core_->rank(), reason));
    } catch (...) {  // out of memory for the words
      core_->abort({});
    }
  }

  void set_activity(const std::string& activity) override {
    if (core_->channel() != nullptr) core_->channel()->set_activity(activity);
  }

  void progress() override {
    core_->advance();
    core_->poll();
  }

 protected:
  void send_bytes(std::span<const std::byte> bytes, int peer, const std::string& what) override {
    const auto message =
        std::make_shared<HostMessage>(communicator_, false, peer, core_->host_tag(), core_->piece_bytes());
    message->bytes.assign(bytes.begin(), bytes.end());
    message->length = bytes.size();
    core_->add(message);
    message->start_length();
    message->start_bytes();
    wait_host(*message, peer, what);
  }

  std::vector<std::byte> recv_bytes(int peer, const std::string& what) override {
    const auto message =
        std::make_shared<HostMessage>(communicator_, true, peer, core_->host_tag(), core_->piece_bytes());
    message->start_length();
    core_->add(message);
    wait_host(*message, peer, what);
    message->bytes.resize(message->length);
    message->start_bytes();
    core_->add(message);
    wait_host(*message, peer, what);
    return std::move(message->bytes);
  }

 private:
  Work start(bool receives, const Tensor& tensor, int peer, int tag, const MessageHeader& header,
             Stream& stream) {
    check_message(tensor, peer, tag);
    require<ValueError>(tag == collective_tag || tag <= core_->max_tag(),
                        "tag {}; this MPI library allows at most {}", tag, core_->max_tag());
    stream.synchronize();
    auto transfer = std::make_shared<Transfer>(core_, communicator_, receives, peer, job_rank(peer),
                                               tag == collective_tag ? core_->collective_tag() : tag, tag,
                                               Envelope::of(header, tensor), tensor);
    core_->add(
        transfer);  // first, so that a failure half-way leaves nothing behind that MPI still reads or writes
    if (receives) {
      std::weak_ptr<Transfer>& last = last_receive_[{peer, tag}];
      transfer->set_behind(std::exchange(last, transfer));
      if (last_receive_.size() > 256)
        std::erase_if(last_receive_, [](const auto& entry) { return entry.second.expired(); });
    }
    transfer->start();
    return Work(std::move(transfer));
  }

  void wait_host(HostMessage& message, int peer, const std::string& what) {
    const auto ready = [&] {
      core_->advance();
      require<CommError>(message.error.empty(), "message with rank {}: {}", job_rank(peer), message.error);
      if (message.ended()) return true;
      core_->poll();
      return false;
    };
    try {
      require<CommError>(poll_until(ready, deadline_seconds()),
                         "waited {} s for rank {}; it is down or stuck (--deadline sets this limit){}",
                         deadline_seconds(), job_rank(peer), core_->suspicion());
    } catch (Error& error) {
      error.add_context(waiter(what));
      throw;
    }
  }

  std::shared_ptr<Core> core_;
  MPI_Comm communicator_;
  std::vector<int> members_;  // job ranks, by rank of this group
  int rank_ = 0;
  std::map<std::pair<int, int>, std::weak_ptr<Transfer>> last_receive_;  // by peer and tag
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Core> core, MPI_Comm communicator,
                                                std::vector<int> members, double deadline_seconds) {
  return std::make_unique<MpiCommunicator>(std::move(core), communicator, std::move(members),
                                           deadline_seconds);
}

}  // namespace penstock::mpi
