// penstock-schedule: lists, draws, exports, verifies and simulates pipeline schedules.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/common/frame.h"
#include "apps/common/terminal.h"
#include "core/error.h"
#include "core/file.h"
#include "parallel/comm/launch_environment.h"
#include "parallel/pipeline/schedule/csv.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/render.h"
#include "parallel/pipeline/schedule/simulate.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

/// The flags of every sub-command that takes a plan.
struct PlanFlags {
  std::optional<std::string> file;  // positional
  std::optional<std::string> schedule;
  std::optional<Index> pp, micro_batches, virtual_stages, replicas, steps;
  bool forward_only = false;
  CostModel costs;
  std::optional<double> memory_limit;
};

struct Flags {
  PlanFlags plan;
  bool json = false;
  bool lowered = false;
  bool timeline = false;
  std::string format = "csv";
  std::optional<std::string> output, svg, chrome;
  std::string transport = "all";
  std::string colour = "auto";
  std::optional<Index> width;
};

void add_plan_flags(Command& command, PlanFlags& flags) {
  const NumberRange cost = at_least(0.0);
  const IntegerRange positive = at_least<Index>(1);
  command.positional("FILE.csv", flags.file, "a schedule file, instead of --schedule");
  command.group("Schedule");
  command.text("schedule", flags.schedule, "NAME|FILE.csv", "a name of `penstock-schedule list`, or a file");
  command.integer("pp", flags.pp, "pipeline ranks", positive);
  command.integer("micro-batches", flags.micro_batches, "micro-batches of one step, over all directions",
                  positive);
  command.integer("virtual-stages", flags.virtual_stages, "chunks a rank holds", positive);
  command.integer("replicas", flags.replicas, "Chimera's f", positive);
  command.integer("steps", flags.steps, "asynchronous schedules: the plan runs this many steps", positive);
  command.boolean("forward-only", flags.forward_only, "the forwards alone, as in evaluation and generation");
  command.group("Costs (one number is that of one p-th of the model; a list has one a stage)");
  command.numbers("cost-f", flags.costs.f, "forward", cost);
  command.numbers("cost-i", flags.costs.i, "backward for the input; a full backward costs I + W", cost);
  command.numbers("cost-w", flags.costs.w, "backward for the weights", cost);
  command.number("cost-overlap", flags.costs.overlap, "an overlapped pair (default F + B)", cost);
  command.number("hop", flags.costs.hop, "from an end to a start on another rank", cost);
  command.numbers("mem-f", flags.costs.memory_f, "held by a forward", cost);
  command.numbers("mem-i", flags.costs.memory_i, "freed by a backward for the input", cost);
  command.numbers("mem-w", flags.costs.memory_w, "freed by a backward for the weights", cost);
  command.number("mem-limit", flags.memory_limit, "per rank; read by zb-1p, zb-2p and zb-v", cost);
  command.group("Options");
}

bool is_file(const std::string& schedule) {
  return schedule.find('/') != std::string::npos || (schedule.size() > 4 && schedule.ends_with(".csv"));
}

/// A file brings its numbers itself: a flag may only repeat them.
Plan read_plan(const std::string& path, const PlanFlags& flags) {
  Plan plan = read_csv(path);
  plan.forward_only = flags.forward_only;
  const auto same = [&](const char* flag, std::optional<Index> given, Index own) {
    require<ValueError>(given.value_or(own) == own, "--{} {}: {} has {}", flag, *given, path, own);
  };
  same("pp", flags.pp, plan.pp);
  same("micro-batches", flags.micro_batches, plan.micro_batches);
  const auto refuse = [&](const char* flag, std::optional<Index> given) {
    require<ValueError>(!given, "--{} {}: {} brings it itself; leave the flag out", flag, given.value_or(0),
                        path);
  };
  refuse("virtual-stages", flags.virtual_stages);
  refuse("replicas", flags.replicas);
  refuse("steps", flags.steps);
  return plan;
}

void check_costs(const Plan& plan, const CostModel& costs) {
  const auto check = [&](const char* flag, const std::vector<double>& numbers) {
    require<ValueError>(numbers.size() == 1 || std::ssize(numbers) == plan.stages,
                        "--{} {}: it has {} numbers; one, or {} (one a stage), is allowed", flag,
                        fmt::join(numbers, ","), numbers.size(), plan.stages);
  };
  check("cost-f", costs.f);
  check("cost-i", costs.i);
  check("cost-w", costs.w);
  check("mem-f", costs.memory_f);
  check("mem-i", costs.memory_i);
  check("mem-w", costs.memory_w);
}

Plan make_plan(const PlanFlags& flags) {
  require<ValueError>(flags.file || flags.schedule,
                      "--schedule is missing: a name of `penstock-schedule list`, or a file");
  require<ValueError>(!flags.file || !flags.schedule,
                      "--schedule {}: {} is given too; one of them is allowed", flags.schedule.value_or(""),
                      flags.file.value_or(""));
  Plan plan;
  if (flags.file || is_file(*flags.schedule)) {
    plan = read_plan(flags.file ? *flags.file : *flags.schedule, flags);
  } else {
    GenerateOptions options;
    options.virtual_stages = flags.virtual_stages;
    options.replicas = flags.replicas;
    options.steps = flags.steps;
    options.costs = flags.costs;
    options.memory_limit = flags.memory_limit;
    check_name(*flags.schedule);
    require<ValueError>(flags.pp.has_value(), "--pp is missing: the number of ranks, 1 or more");
    require<ValueError>(flags.micro_batches.has_value(), "--micro-batches is missing: 1 or more");
    options.pp = *flags.pp;
    options.micro_batches = *flags.micro_batches;
    plan = generate(*flags.schedule, options);
    if (flags.forward_only) {
      plan = forward_plan(plan.placement, plan.micro_batches);
      plan.schedule = *flags.schedule + " (forward only)";
    }
  }
  check_costs(plan, flags.costs);
  return plan;
}

/// The same, and it can run: for everything that needs more than its cells.
Plan make_sound_plan(const PlanFlags& flags) {
  Plan plan = make_plan(flags);
  VerifyOptions options;
  options.transports.clear();
  require_verified(plan, options);
  return plan;
}

std::string title_of(const Plan& plan) {
  return fmt::format("{}: {} {}, {} {}, {} {}", plan.schedule, plan.pp, plan.pp == 1 ? "rank" : "ranks",
                     plan.stages, plan.stages == 1 ? "stage" : "stages", plan.micro_batches,
                     plan.micro_batches == 1 ? "micro-batch" : "micro-batches");
}

int list(const Flags& flags, Frame& frame) {
  if (flags.json) {
    Json document = Json::array();
    for (const ScheduleInfo& info : schedules())
      document.push_back(
          {{"name", info.name}, {"summary", info.summary}, {"available", info.generator != nullptr}});
    frame.print(document.dump() + "\n");
    return kExitDone;
  }
  std::string text;
  for (const ScheduleInfo& info : schedules())
    text +=
        fmt::format("{:<18}{}{}\n", info.name, info.summary, info.generator == nullptr ? " (not yet)" : "");
  frame.print(text);
  return kExitDone;
}

int export_plan(const Flags& flags, Frame& frame) {
  Plan plan;
  if (flags.lowered || flags.format == "json") {
    plan = make_sound_plan(flags.plan);
    if (flags.lowered && !plan.lowered) plan = lower(plan);
  } else {
    plan = make_plan(flags.plan);
  }
  const std::string text = flags.format == "json" ? to_json(plan) + "\n" : to_csv(plan);
  if (!flags.output) {
    frame.start_work();
    frame.print(text);
    return kExitDone;
  }
  AtomicFile file(*flags.output);
  frame.start_work();
  file.write(text);
  file.commit();
  return kExitDone;
}

int verify_plan(const Flags& flags, Frame& frame) {
  const Plan plan = make_plan(flags.plan);
  VerifyOptions options;
  if (flags.transport != "all")
    std::erase_if(options.transports,
                  [&](Transport transport) { return name(transport) != flags.transport; });
  frame.start_work();
  const auto violation = verify(plan, options);
  if (flags.json) {
    Json document = {{"ok", !violation}};
    if (violation) {
      document["rank"] = violation->rank;
      document["position"] = violation->position;
      document["action"] = violation->action;
      document["rule"] = violation->rule;
      document["message"] = violation->message();
    }
    frame.print(document.dump() + "\n");
  } else if (violation) {
    frame.print(fmt::format("refused: {}\n", violation->message()));
  } else {
    std::vector<std::string_view> names;
    for (const Transport transport : options.transports) names.push_back(name(transport));
    frame.print(fmt::format("verified: {}; transport {}\n", title_of(plan), fmt::join(names, ", ")));
  }
  return violation ? kExitRefused : kExitDone;
}

Json simulation_json(const Simulation& simulation, bool timeline) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const RankSimulation& own = simulation.ranks[rank];
    ranks.push_back(
        {{"rank", rank}, {"busy", own.busy}, {"first_start", own.first_start}, {"last_end", own.last_end}});
  }
  Json document = {{"makespan", simulation.makespan},
                   {"cost", simulation.cost},
                   {"bubble_total", simulation.bubble_total},
                   {"bubble_cost", simulation.bubble_cost},
                   {"bubble_ideal", simulation.bubble_ideal},
                   {"peak", simulation.peak},
                   {"peak_in_flight", simulation.peak_in_flight},
                   {"ranks", ranks}};
  if (!timeline) return document;
  document["timeline"] = Json::array();
  for (const auto& line : simulation.timeline.ranks) {
    Json items = Json::array();
    for (const TimedAction& item : line)
      items.push_back({{"action", to_text(item.action)}, {"start", item.start}, {"end", item.end}});
    document["timeline"].push_back(std::move(items));
  }
  return document;
}

std::string simulation_text(const Plan& plan, const Simulation& simulation, bool timeline) {
  std::string text = fmt::format(
      "{}\nmakespan {:.10g}   cost {:.10g}\nbubble_total {:.4f}   bubble_cost {:.4f}   bubble_ideal {:.4f}\n"
      "{:>5} {:>12} {:>12} {:>12} {:>12} {:>10}\n",
      title_of(plan), simulation.makespan, simulation.cost, simulation.bubble_total, simulation.bubble_cost,
      simulation.bubble_ideal, "rank", "busy", "first_start", "last_end", "peak", "in_flight");
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const RankSimulation& own = simulation.ranks[rank];
    text +=
        fmt::format("{:>5} {:>12.8g} {:>12.8g} {:>12.8g} {:>12.8g} {:>10}\n", rank, own.busy, own.first_start,
                    own.last_end, simulation.peak[rank], simulation.peak_in_flight[rank]);
  }
  for (std::size_t rank = 0; timeline && rank < simulation.timeline.ranks.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const TimedAction& item : simulation.timeline.ranks[rank])
      text += fmt::format(" {}@{:.6g}-{:.6g}", to_text(item.action), item.start, item.end);
    text += "\n";
  }
  return text;
}

int simulate_plan(const Flags& flags, Frame& frame) {
  const Plan plan = make_sound_plan(flags.plan);
  frame.start_work();
  const Simulation simulation = simulate(plan, flags.plan.costs);
  frame.print(flags.json ? simulation_json(simulation, flags.timeline).dump() + "\n"
                         : simulation_text(plan, simulation, flags.timeline));
  return kExitDone;
}

int show(const Flags& flags, Frame& frame) {
  const Plan plan = make_sound_plan(flags.plan);
  require<ValueError>(!flags.svg || flags.svg != flags.chrome, "--chrome {}: --svg writes that file",
                      flags.chrome.value_or(""));
  std::optional<AtomicFile> svg_file;
  std::optional<AtomicFile> chrome_file;
  if (flags.svg) svg_file.emplace(*flags.svg);
  if (flags.chrome) chrome_file.emplace(*flags.chrome);
  frame.start_work();
  const Simulation simulation = simulate(plan, flags.plan.costs);
  const std::string title = title_of(plan);
  if (svg_file) {
    svg_file->write(svg(simulation.timeline, title));
    svg_file->commit();
  }
  if (chrome_file) {
    chrome_file->write(chrome_trace(simulation.timeline, title));
    chrome_file->commit();
  }
  RenderOptions options;
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  options.width = flags.width.value_or(terminal.columns);
  options.colour = flags.colour == "always" || (flags.colour == "auto" && terminal.interactive);
  frame.print(render(simulation.timeline, title, options));
  frame.print(fmt::format("makespan {:.6g}, bubble {:.1f} %, in flight at most {}\n", simulation.makespan,
                          100 * simulation.bubble_total, fmt::join(simulation.peak_in_flight, " ")));
  return kExitDone;
}

/// The first of the processes that a launcher started, or the only one. A program without ranks is done by it
/// alone: a launcher ends all processes at the first that fails, be it before it has told why.
bool is_first_process() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"})
    if (const auto rank = environment_variable(variable)) return *rank == "0";
  const auto slurm = environment_variable("SLURM_PROCID");
  return !slurm || *slurm == "0";
}

int run(int argc, char** argv, Frame& frame) {
  if (!is_first_process()) return kExitDone;
  Program program("penstock-schedule", "Lists, draws, exports, verifies and simulates pipeline schedules.");
  program.root().example(
      "penstock-schedule show --schedule 1f1b --pp 4 --micro-batches 8 --cost-f 1 --cost-i 1");
  Flags flags;

  Command& list_command = program.command("list", "every schedule by name, one a line");
  list_command.boolean("json", flags.json, "one JSON document: an array of objects with name");
  list_command.example("penstock-schedule list");

  Command& show_command = program.command("show", "draws the simulated timeline in the terminal");
  add_plan_flags(show_command, flags.plan);
  show_command.text("svg", flags.svg, "FILE", "also write a picture");
  show_command.text("chrome", flags.chrome, "FILE",
                    "also write a Chrome trace (one unit of cost is a microsecond)");
  show_command.choice("colour", flags.colour, {"auto", "always", "never"}, "auto: when stdout is a terminal");
  show_command.integer("width", flags.width, "columns (default: the terminal's, else 100)",
                       between<Index>(40, 10000));
  show_command.example("penstock-schedule show --schedule 1f1b --pp 4 --micro-batches 8 --svg 1f1b.svg");

  Command& export_command = program.command("export", "writes the plan as torch's CSV or as JSON");
  add_plan_flags(export_command, flags.plan);
  export_command.boolean("lowered", flags.lowered, "with SEND and RECV");
  export_command.choice("format", flags.format, {"csv", "json"}, "form of the plan");
  export_command.text("output", flags.output, "FILE", "write there instead of to stdout");
  export_command.example("penstock-schedule export --schedule gpipe --pp 2 --micro-batches 4 --lowered");

  Command& verify_command =
      program.command("verify", "proves that a plan can run: exit 0, or 3 and the fault");
  add_plan_flags(verify_command, flags.plan);
  verify_command.choice("transport", flags.transport, {"buffered", "fifo", "rendezvous", "all"},
                        "what sends and receives may rely on");
  verify_command.boolean("json", flags.json, "one JSON document");
  verify_command.example("penstock-schedule verify mine.csv --transport rendezvous");

  Command& simulate_command = program.command("simulate", "times and memory of a plan under a cost model");
  add_plan_flags(simulate_command, flags.plan);
  simulate_command.boolean("timeline", flags.timeline, "also start and end of every action");
  simulate_command.boolean("json", flags.json, "one JSON document");
  simulate_command.example(
      "penstock-schedule simulate --schedule 1f1b --pp 4 --micro-batches 8 --hop 0.1 --json");

  Command& plan_command = program.command("plan", "the best layout and schedule for a model (not yet)");
  std::optional<std::string> ignored;
  for (const char* flag : {"model", "ranks", "memory", "batch"})
    plan_command.text(flag, ignored, "X", "not yet");

  const Parsed parsed = program.parse(argc, argv);
  if (!parsed.print.empty()) {
    frame.print(parsed.print);
    return kExitDone;
  }
  const std::string& command = parsed.command->name();
  require<ValueError>(command != "plan",
                      "plan is not yet built; list, show, export, verify and simulate are");
  if (command == "list") return list(flags, frame);
  if (command == "show") return show(flags, frame);
  if (command == "export") return export_plan(flags, frame);
  if (command == "verify") return verify_plan(flags, frame);
  return simulate_plan(flags, frame);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_program("penstock-schedule",
                               [&](penstock::Frame& frame) { return penstock::run(argc, argv, frame); });
}
