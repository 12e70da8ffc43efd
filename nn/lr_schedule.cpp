// LrSchedule.
#include "nn/lr_schedule.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace penstock {

LrDecay parse_lr_decay(const std::string& name) {
  if (name == "constant") return LrDecay::constant;
  if (name == "linear") return LrDecay::linear;
  if (name == "cosine") return LrDecay::cosine;
  if (name == "wsd") return LrDecay::wsd;
  throw ValueError("learning-rate schedule '{}': constant, linear, cosine or wsd", name);
}

double LrSchedule::rate(std::int64_t step) const {
  if (step <= warmup) return lr * static_cast<double>(step) / static_cast<double>(warmup);
  const double x =
      steps > warmup ? static_cast<double>(step - warmup) / static_cast<double>(steps - warmup) : 1.0;
  switch (decay) {
    case LrDecay::constant:
      return lr;
    case LrDecay::linear:
      return lr + (min_lr - lr) * x;
    case LrDecay::cosine:
      return min_lr + (lr - min_lr) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case LrDecay::wsd:
      return x <= 0.8 ? lr : lr + (min_lr - lr) * (x - 0.8) / (1 - 0.8);
  }
  return lr;
}

}  // namespace penstock
