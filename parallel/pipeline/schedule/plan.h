// A pipeline schedule as data: one list of actions a rank, and where every stage lives.
//
// The same object is generated, verified, lowered, simulated, drawn, written to a file and executed. It knows
// no tensors and no transport.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/checked.h"
#include "parallel/pipeline/schedule/action.h"

namespace penstock {

/// A cell of a row: an action, or nothing (a bubble, kept so that a file is written again as it was read).
using Cell = std::optional<Action>;

/// Where the stages live: placement[replica][stage] is a rank. Schemes with one copy of the model have one
/// replica, bidirectional ones several.
using Placement = std::vector<std::vector<Index>>;

/// Asynchronous schemes: the number of updates already in the weights that a micro-batch's forward and
/// backward use, [stage][micro-batch].
struct WeightVersions {
  std::vector<std::vector<Index>> forward;
  std::vector<std::vector<Index>> backward;
};

struct Plan {
  std::string schedule;     // name of the scheme, or the file that it came from
  Index pp = 0;             // ranks
  Index micro_batches = 0;  // over the whole plan, all directions together
  Index stages = 0;         // of the model
  Placement
      placement;  // [replica][stage] -> rank; empty where a file's rows do not give one (verify says why)
  std::vector<Index> replica;           // [micro-batch] -> replica
  std::vector<std::vector<Cell>> rows;  // [rank][position]
  std::optional<WeightVersions> versions;
  Index micro_batches_per_update = 0;  // micro_batches where the plan ends with its one update
  bool lowered = false;                // rows hold SEND and RECV
  bool forward_only = false;           // evaluation and generation: no backward, no update

  /// The rank that runs (stage, micro_batch). Throws ValueError out of range or without a placement.
  Index rank_of(Index stage, Index micro_batch) const;

  /// The stages that a rank holds, ascending. (A rank of a bidirectional plan holds one a replica.)
  std::vector<Index> stages_of(Index rank) const;

  /// A rank's actions in order, without bubbles.
  std::vector<Action> actions(Index rank) const;
};

/// Stage s on rank s: one replica, `ranks` stages.
Placement linear_placement(Index ranks);
/// Stage s on rank s mod ranks: `chunks` stages a rank.
Placement looped_placement(Index ranks, Index chunks);

/// A plan from rows alone, as a file gives them: counts, placement and replicas are read off the actions. The
/// rows may be wrong in any way; what cannot be told is left empty and `verify` names the fault.
Plan plan_from_rows(std::string schedule, std::vector<std::vector<Cell>> rows);

/// Rows written as text, blanks between actions: for tests and examples. "0F0 0B0" is one row; "-" is a
/// bubble.
std::vector<std::vector<Cell>> rows_from_text(const std::vector<std::string>& rows);
/// One row as text, blanks between actions, bubbles left out.
std::string row_text(const Plan& plan, Index rank);

}  // namespace penstock
