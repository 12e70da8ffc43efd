// One cell of a schedule: what a rank does, at which stage, for which micro-batch, and its text form.
//
// The text form is that of torch.distributed.pipelining's CSV files: stage, kind, micro-batch (`2F0`,
// `3SEND_B1`), stage and kind alone where there is no micro-batch (`1UNSHARD`), `(0F7;7B3)OVERLAP_F_B` for an
// overlapped pair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checked.h"

namespace penstock {

enum class ActionKind : std::uint8_t {
  // Compute: the whole of an unlowered plan.
  F,            // forward
  B,            // full backward: I and W in one
  I,            // backward for the input (activations)
  W,            // backward for the weights
  OVERLAP_F_B,  // one F and one B that run together
  RECOMPUTE,    // the forward again, to get activations back
  // Communication, added by lowering. The stage is the one at which the action sits.
  SEND_F,  // activations of (stage, micro-batch) go to stage + 1
  RECV_F,  // they come from stage - 1
  SEND_B,  // the gradient goes to stage - 1
  RECV_B,  // it comes from stage + 1
  // Once a stage and update, added by add_optimizer.
  REDUCE_GRAD,  // sum the stage's gradients over its replicas
  STEP,         // optimizer update of the stage's weights
  // Memory, added by plans that swap or shard.
  OFFLOAD,   // activations of (stage, micro-batch) leave the device
  PREFETCH,  // and come back
  UNSHARD,   // gather the stage's weights
  RESHARD,   // and let them go again
  // Waits that torch writes; kept in files, without meaning here.
  WAIT_SEND_F,
  WAIT_SEND_B,
  WAIT_REDUCE_GRAD,
};

/// The kind as it is written, "F" or "SEND_B".
std::string_view name(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::F;
  Index stage = 0;
  Index micro_batch = -1;           // -1 where the kind carries none
  Index backward_stage = -1;        // OVERLAP_F_B alone: stage and micro_batch are those of its F,
  Index backward_micro_batch = -1;  // these two those of its B

  friend bool operator==(const Action&, const Action&) = default;
};

/// (stage F micro_batch; backward_stage B backward_micro_batch) as one action.
Action overlap(Index stage, Index micro_batch, Index backward_stage, Index backward_micro_batch);

/// Whether the kind carries a micro-batch (REDUCE_GRAD, STEP, UNSHARD, RESHARD, WAIT_REDUCE_GRAD do not).
bool has_micro_batch(ActionKind kind);
/// F, B, I, W, OVERLAP_F_B, RECOMPUTE: what takes time in the cost model.
bool is_compute(ActionKind kind);
/// SEND_F, RECV_F, SEND_B, RECV_B.
bool is_communication(ActionKind kind);
/// SEND_F or SEND_B.
bool is_send(ActionKind kind);
/// RECV_F or RECV_B.
bool is_receive(ActionKind kind);

/// What an action consists of: an overlapped pair gives its F and its B, every other action itself.
struct ActionParts {
  Action items[2];
  int count = 1;
  const Action* begin() const { return items; }
  const Action* end() const { return items + count; }
};
ActionParts parts(const Action& action);

/// The other end of a message: `2SEND_F1` -> `3RECV_F1`, `3SEND_B1` -> `2RECV_B1`, and back. Throws
/// ValueError for an action that is no SEND or RECV, or whose other end would be a stage below 0.
Action peer(const Action& action);

/// The text form.
std::string to_text(const Action& action);

/// Reads the text form; blanks round it are allowed. Throws ValueError that says what is wrong with it.
Action parse_action(std::string_view text);

}  // namespace penstock
