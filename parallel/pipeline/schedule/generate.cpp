// The table of schedules and the way from a name to its plan.
#include "parallel/pipeline/schedule/generate.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "parallel/pipeline/schedule/family.h"
#include "parallel/pipeline/schedule/nearest.h"

namespace penstock {
namespace {

constexpr std::array<ScheduleInfo, 25> kSchedules = {{
    {"gpipe", "every forward, then every backward", generate_gpipe},
    {"1f1b", "one forward, one backward in turn after a warm-up (PipeDream-Flush, DAPPLE)",
     generate_one_f_one_b},
    {"eager-1f1b", "1F1B with a longer warm-up that hides hops"},
    {"interleaved-1f1b", "1F1B over several chunks a rank: a smaller bubble for more traffic (Megatron-LM)"},
    {"looped-bfs", "looped chunks, all micro-batches of a chunk at a time (breadth-first)"},
    {"zb-h1", "split backward fills the drain, memory of 1F1B (Zero Bubble)"},
    {"zb-h2", "split backward and a longer warm-up: hardly a bubble, twice the memory (Zero Bubble)"},
    {"zb-1p", "zero bubble built from the costs under the memory of 1F1B"},
    {"zb-2p", "zero bubble built from the costs under twice the memory"},
    {"zb-v", "zero bubble on the V placement, memory of 1F1B"},
    {"interleaved-zb", "interleaved 1F1B with split backward"},
    {"v-half", "V placement, half the activation memory of 1F1B"},
    {"v-min", "V placement, a third of the activation memory of 1F1B"},
    {"dualpipe", "two directions with overlapped forward and backward (DeepSeek-V3)"},
    {"dualpipev", "DualPipe folded into a V: one copy of the weights"},
    {"chimera", "bidirectional pipelines, units concatenated"},
    {"chimera-doubling", "Chimera with forward doubling"},
    {"chimera-halving", "Chimera with backward halving"},
    {"hanayo", "wave placement"},
    {"gems", "two replicas in opposite directions, one micro-batch in flight"},
    {"varuna", "1F1B-like with recompute, backward first"},
    {"pipedream", "asynchronous 1F1B, weight stashing, an update a micro-batch"},
    {"pipedream-2bw", "asynchronous 1F1B, two weight versions"},
    {"pipemare", "asynchronous 1F1B without stashed weights"},
    {"auto", "the best found for the costs and the memory limit"},
}};

// A plan of this many actions takes about 10 GB; nobody asks for more on purpose.
constexpr Index kMostActions = Index{1} << 27;

/// The entry of a name that has a generator.
const ScheduleInfo& find(std::string_view name) {
  const auto* info = std::find_if(kSchedules.begin(), kSchedules.end(),
                                  [&](const auto& known) { return known.name == name; });
  if (info == kSchedules.end()) {
    std::vector<std::string_view> names;
    for (const ScheduleInfo& schedule : kSchedules) names.push_back(schedule.name);
    throw ValueError(
        "--schedule {}: no such schedule; the nearest name is {} (`penstock-schedule list` has them all)",
        name, nearest_name(name, names));
  }
  require<ValueError>(info->generator != nullptr, "--schedule {} is not yet built; gpipe and 1f1b are", name);
  return *info;
}

}  // namespace

std::span<const ScheduleInfo> schedules() { return kSchedules; }

void check_name(std::string_view name) { find(name); }

Plan generate(std::string_view name, const GenerateOptions& options) { return find(name).generator(options); }

Plan linear_plan(const std::string& schedule, const GenerateOptions& options) {
  require<ValueError>(options.pp >= 1, "--pp {}: 1 or more is allowed", options.pp);
  require<ValueError>(options.micro_batches >= 1, "--micro-batches {}: 1 or more is allowed",
                      options.micro_batches);
  require<ValueError>(options.pp <= kMostActions / 2 / options.micro_batches,
                      "--pp {} with --micro-batches {}: a plan has at most {} actions", options.pp,
                      options.micro_batches, kMostActions);
  const auto only_one = [&](const char* flag, std::optional<Index> value, const char* rule) {
    require<ValueError>(value.value_or(1) == 1, "--{} {}: {} has {}, so 1 alone is allowed", flag, *value,
                        schedule, rule);
  };
  only_one("virtual-stages", options.virtual_stages, "one chunk a rank");
  only_one("replicas", options.replicas, "one copy of the model");
  only_one("steps", options.steps, "a flush after every step");
  Plan plan;
  plan.schedule = schedule;
  plan.pp = options.pp;
  plan.micro_batches = options.micro_batches;
  plan.micro_batches_per_update = options.micro_batches;
  plan.stages = options.pp;
  plan.placement = linear_placement(options.pp);
  plan.replica.assign(static_cast<std::size_t>(options.micro_batches), 0);
  plan.rows.resize(static_cast<std::size_t>(options.pp));
  return plan;
}

}  // namespace penstock
