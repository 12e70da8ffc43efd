// Benchmarks of the ops, from the same table as their tests, at the sizes of a GPT-2 of 124 million
// parameters: forward, and forward with both halves of the backward.
//
//   bench_ops [OP...] [--benchmark_filter=REGEX] ...    the ops named, or all of them
//
// PENSTOCK_BENCH_THREADS sets the compute threads (1), PENSTOCK_BENCH_DTYPE=bf16 the dtype (fp32). Naming ops
// spares the drawing of the others' inputs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "ops/table/run.h"

namespace {

using namespace penstock;
using namespace penstock::testing;

int compute_threads() {
  const char* text = std::getenv("PENSTOCK_BENCH_THREADS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

DType dtype() {
  const char* text = std::getenv("PENSTOCK_BENCH_DTYPE");
  return text ? parse_dtype(text) : DType::f32;
}

/// The samples of one op, kept until another op's are asked for: all of them together take gigabytes.
const std::vector<Sample>& benchmarks_of(const OpRecord& op) {
  static const OpRecord* held = nullptr;
  static std::vector<Sample> samples;
  if (held != &op) {
    samples.clear();
    samples = in_dtype(op.benchmarks(), dtype());
    held = &op;
    require<ValueError>(!samples.empty(), "the record of {} has no benchmark", op.name);
  }
  return samples;
}

void run(benchmark::State& state, const Sample& sample, bool backward) {
  RankContext context({.device = {}, .threads = compute_threads()});
  SampleWeights weights(context, sample);
  const double before = context.stream().flops();
  for (auto _ : state) {
    state.PauseTiming();  // arguments are not part of the op
    SampleRun sample_run(context, sample, weights);
    state.ResumeTiming();
    sample_run.forward();
    if (!backward) continue;
    state.PauseTiming();
    sample_run.draw_cotangent();
    state.ResumeTiming();
    sample_run.backward_input();
    sample_run.backward_weight();
  }
  const double flops = context.stream().flops() - before;
  if (flops > 0) state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}

void register_op(const OpRecord& op) {
  const std::vector<Sample>& samples = benchmarks_of(op);
  for (std::size_t i = 0; i < samples.size(); ++i)
    for (const bool backward : {false, true})
      benchmark::RegisterBenchmark(
          (op.name + "/" + samples[i].name + (backward ? "/forward_backward" : "/forward")).c_str(),
          [&op, i, backward](benchmark::State& state) { run(state, benchmarks_of(op)[i], backward); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
}

/// The ops that the command line names. Throws ValueError for a name that the table does not have.
std::set<std::string> chosen(int count, char** names) {
  std::set<std::string> result(names, names + count);
  for (const std::string& name : result)
    require<ValueError>(std::ranges::any_of(op_table(), [&](const OpRecord& op) { return op.name == name; }),
                        "{} is no op of the table and no flag (--help lists the flags)", name);
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  benchmark::Initialize(&argc, argv);  // takes its flags out
  const std::set<std::string> names = chosen(argc - 1, argv + 1);
  for (const OpRecord& op : op_table())
    if ((names.empty() || names.contains(op.name)) && std::ranges::count(dtypes_of(op), dtype()) > 0)
      register_op(op);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_ops: {}\n", error.what());
  return 1;
}
