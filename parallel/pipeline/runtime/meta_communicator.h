// MetaCommunicator: a rank among others that are not there. Messages have shapes and no bytes; every one has
// arrived. For running a rank's part of a plan on the meta device.
#pragma once

#include "parallel/comm/communicator.h"

namespace penstock {

class MetaCommunicator final : public Communicator {
 public:
  MetaCommunicator(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int job_rank(int rank) const override { return rank; }
  Work send(const Tensor&, int, int, const MessageHeader&, Stream&) override { return {}; }
  Work recv(const Tensor&, int, int, const MessageHeader&, Stream&) override { return {}; }
  std::unique_ptr<Communicator> split(int, int) override {
    throw ValueError("ranks on the meta device have no sub-groups");
  }
  void abort(const std::string&) noexcept override {}
  void progress() override {}

 protected:
  void send_bytes(std::span<const std::byte>, int, const std::string&) override {}
  std::vector<std::byte> recv_bytes(int, const std::string& what) override {
    throw ValueError("{}: collectives have no result on the meta device", what);
  }

 private:
  int rank_, size_;
};

}  // namespace penstock
