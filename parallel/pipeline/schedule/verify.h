// Proof that a plan can run: every action exactly once, in an order that its dependencies allow, with sends
// and receives that pair up and lock under no transport.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule/plan.h"

namespace penstock {

/// What SEND and RECV may rely on.
enum class Transport {
  buffered,    // SEND never waits; RECV waits for its own message
  fifo,        // the same, but messages of a directed pair of ranks arrive in order and RECV takes the first
  rendezvous,  // SEND and RECV complete only together, each being the next action of its rank
};

std::string_view name(Transport transport);

struct VerifyOptions {
  std::vector<Transport> transports = {Transport::buffered, Transport::fifo, Transport::rendezvous};
  /// Also check REDUCE_GRAD and STEP: as many as updates, each after the last backward of its stage, and all
  /// replicas of a stage reduce in one order. Off for files, where they are torch's and have no say.
  bool optimizer = false;
};

/// The first fault found.
struct Violation {
  Index rank =
      -1;  // where it is; for something missing the rank that it belongs on; -1: no rank in particular
  Index position = -1;  // cell of the rank's row, from 0, bubbles counted; -1 for something missing
  std::string action;   // text form; empty where there is none
  std::string rule;     // short name of the rule
  std::string text;     // what is wrong, with the values

  /// One line: "rank 1, position 3, 1F2: text (rule: ...)".
  std::string message() const;
};

/// Nothing, or the first fault. A plan that is not lowered is checked, lowered, and checked on the
/// transports. The work is linear in the actions.
std::optional<Violation> verify(const Plan& plan, const VerifyOptions& options = {});

/// The same, as a ValueError with the message.
void require_verified(const Plan& plan, const VerifyOptions& options = {});

/// Runs the SENDs and RECVs of rows (a whole lowered plan or a fragment of one) under one transport; compute
/// actions never wait. The fault is the first lock, or, under fifo, the RECV that would get another message.
std::optional<Violation> check_transport(const std::vector<std::vector<Cell>>& rows, Transport transport);

}  // namespace penstock
