// Judges of plans that share nothing with the verifier: they count actions in one pass and look for cycles in
// a graph, where the verifier runs the plan.
#pragma once

#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock::testing {

/// Whether the compute actions of a plan (no pairs, no RECOMPUTE, one replica) are the right multiset on the
/// ranks of `placement` and the graph of row order and dependencies has no cycle.
bool compute_is_sound(const std::vector<std::vector<Cell>>& rows, const std::vector<Index>& placement,
                      Index micro_batches);

/// The same for SENDs and RECVs: the right multiset on the right ranks, beside their producers and consumers.
bool messages_are_sound(const std::vector<std::vector<Cell>>& rows, const std::vector<Index>& placement,
                        Index micro_batches);

/// Whether the graph of row order and messages, whose SENDs and RECVs pair up, is free of cycles: under
/// rendezvous a pair is one node, under buffered an edge from SEND to RECV; fifo is buffered with the order
/// of each channel kept.
bool transport_is_sound(const std::vector<std::vector<Cell>>& rows, Transport transport);

}  // namespace penstock::testing
