// What each compute action needs and makes, and the running of a plan in list order: the common ground of the
// verifier, the lowering and the simulator.
#pragma once

#include <functional>
#include <vector>

#include "parallel/pipeline/schedule/plan.h"

namespace penstock {

/// The values of a step are numbered: the output of F(stage, micro-batch) and, made by B or I, the gradient
/// of its input.
class ValueTable {
 public:
  /// Throws ValueError where the plan's rows cannot hold stages x micro_batches forwards.
  explicit ValueTable(const Plan& plan);

  std::size_t size() const { return 2 * stages_ * micro_batches_; }
  std::size_t forward(Index stage, Index micro_batch) const {
    return static_cast<std::size_t>(stage) * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }
  std::size_t backward(Index stage, Index micro_batch) const {
    return stages_ * micro_batches_ + forward(stage, micro_batch);
  }

  /// Values that a single compute action (no pair) needs: F(s) those of F(s-1); B and I of F(s) and of the
  /// backward of s+1; W of its I; RECOMPUTE of its F.
  std::vector<std::size_t> needs(const Action& part) const;
  /// Whether it makes a value, and which.
  std::optional<std::size_t> makes(const Action& part) const;
  /// Text of the action that makes a value, "2F0", a gradient as "2B0".
  std::string text(std::size_t value) const;

 private:
  std::size_t stages_;
  std::size_t micro_batches_;
};

/// How far each rank came and which values exist.
struct Progress {
  std::vector<std::size_t> position;  // per rank: its next cell
  std::vector<char> made;             // per value
  bool complete = false;

  /// The first value that an action waits for; nothing where it can run.
  std::optional<std::size_t> waits_for(const ValueTable& table, const Action& action) const;
};

/// Runs the plan's compute actions in list order, every rank as far as it can go, in turn, until nothing
/// moves. Calls `visit` for every action that runs, after those that it depends on. Other kinds and bubbles
/// are passed over.
Progress run_in_order(const Plan& plan, const ValueTable& table,
                      const std::function<void(Index rank, const Action& action)>& visit);

}  // namespace penstock
