// Benchmarks of the ops, from the same table as their tests, at the sizes of a GPT-2 of 124 million
// parameters: forward, and forward with both halves of the backward. PENSTOCK_BENCH_THREADS sets the compute
// threads (1).
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "ops/table/run.h"

namespace {

using namespace penstock;
using namespace penstock::testing;

int compute_threads() {
  const char* text = std::getenv("PENSTOCK_BENCH_THREADS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

void run(benchmark::State& state, const Sample& sample, bool backward) {
  RankContext context({.threads = compute_threads()});
  SampleWeights weights(context, sample);
  const double before = context.stream().flops();
  for (auto _ : state) {
    state.PauseTiming();  // arguments are not part of the op
    SampleRun sample_run(context, sample, weights);
    state.ResumeTiming();
    sample_run.forward();
    if (!backward) continue;
    sample_run.backward_input();
    sample_run.backward_weight();
  }
  const double flops = context.stream().flops() - before;
  if (flops > 0) state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}

}  // namespace

int main(int argc, char** argv) {
  for (const OpRecord& op : op_table())
    for (const Sample& sample : op.benchmarks())
      for (const bool backward : {false, true})
        benchmark::RegisterBenchmark(
            (op.name + "/" + sample.name + (backward ? "/forward_backward" : "/forward")).c_str(),
            [sample, backward](benchmark::State& state) { run(state, sample, backward); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
