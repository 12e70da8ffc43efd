// Uses the installed library through its public headers: makes a tensor; generates, proves and simulates a
// schedule.
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/tensor.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/simulate.h"
#include "parallel/pipeline/schedule/verify.h"

int main() {
  penstock::RankContext context;
  const auto tensor = penstock::Tensor::from<float>(context, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});

  penstock::GenerateOptions options;
  options.pp = 4;
  options.micro_batches = 8;
  const penstock::Plan plan = penstock::generate("1f1b", options);
  penstock::require_verified(plan);
  const penstock::Simulation simulation = penstock::simulate(plan, options.costs);

  // 1F1B idles for (p - 1) of M + p - 1 slots.
  std::printf("tensor of %lld, bubble %.6f\n", static_cast<long long>(tensor.numel()),
              simulation.bubble_total);
  return tensor.numel() == 6 && std::abs(simulation.bubble_total - 3.0 / 11.0) < 1e-12 ? 0 : 1;
}
