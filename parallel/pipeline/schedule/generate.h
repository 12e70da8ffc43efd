// The schedules by name: a registry of pure functions from (ranks, micro-batches, chunks, costs) to a plan.
//
// A family lives in one file; adding a scheme is a generator there and its line in the table of generate.cpp.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/schedule/simulate.h"

namespace penstock {

/// What a generator may need. An absent value is the scheme's own default.
struct GenerateOptions {
  Index pp = 1;                         // ranks
  Index micro_batches = 1;              // of one optimizer step, over all directions
  std::optional<Index> virtual_stages;  // chunks a rank
  std::optional<Index> replicas;        // Chimera's f
  std::optional<Index> steps;           // asynchronous schemes: the plan runs steps x micro_batches
  CostModel costs;                      // for schemes that are built from them
  std::optional<double> memory_limit;   // per rank, in the unit of costs.memory_f
};

struct ScheduleInfo {
  std::string_view name;
  std::string_view summary;                             // one line
  Plan (*generator)(const GenerateOptions&) = nullptr;  // null: not yet built
};

/// Every name of the contract, in its order.
std::span<const ScheduleInfo> schedules();

/// Throws the ValueError of `generate` for an unknown name and for one that is not yet built.
void check_name(std::string_view name);

/// The plan of a named scheme, not lowered. Throws ValueError that names the flag of penstock-schedule, the
/// value and the rule: for an unknown name (with the nearest one), one that is not yet built, a value that
/// the scheme does not define.
Plan generate(std::string_view name, const GenerateOptions& options);

/// A forward-only plan (evaluation, generation) on a placement: each rank takes the deepest forward that is
/// ready, the lowest micro-batch first. Micro-batches are dealt to the replicas in even blocks. Throws
/// ValueError for an empty or ragged placement or micro_batches < 1.
Plan forward_plan(const Placement& placement, Index micro_batches);

// The generators, one file a family (reference: schedules.md has each order's definition).
Plan generate_gpipe(const GenerateOptions& options);  // 1811.06965
Plan generate_one_f_one_b(
    const GenerateOptions& options);  // PipeDream-Flush / DAPPLE, 2006.09503, 2007.01045

}  // namespace penstock
