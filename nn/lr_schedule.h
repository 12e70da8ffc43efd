// Learning rate as a pure function of the step.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

enum class LrDecay : std::uint8_t { constant, linear, cosine, wsd };

/// From "constant", "linear", "cosine" or "wsd"; throws ValueError otherwise.
LrDecay parse_lr_decay(const std::string& name);

struct LrSchedule {
  LrDecay decay = LrDecay::constant;
  double lr = 1e-3, min_lr = 0;
  std::int64_t warmup = 0, steps = 0;

  /// Rate of a step, from 1. With warm-up W: lr s/W for s <= W; then with x = (s-W)/(steps-W): constant lr;
  /// linear lr + (min_lr - lr) x; cosine min_lr + (lr - min_lr)(1 + cos(pi x))/2; wsd lr until x = 0.8, then
  /// linear to min_lr.
  double rate(std::int64_t step) const;
};

}  // namespace penstock
