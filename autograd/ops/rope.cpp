// rope: the backward is the rotation by the opposite angle.
#include "autograd/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/convert.h"
#include "autograd/ops/operands.h"
#include "kernels/rope.h"

namespace penstock::ops {
namespace {

class RopeOp final : public Op {
 public:
  RopeOp(Index head_size, const RopeOptions& options) {
    const std::vector<double> frequencies = rope_frequencies(head_size, options);
    std::copy(frequencies.begin(), frequencies.end(), shape_.frequency);
    shape_.head_size = head_size;
  }

  std::string_view name() const override { return "rope"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_floats(name(), in.first(1));
    require_indices(name(), "positions", in[1]);
    const Tensor x = in[0].contiguous(), positions = converted(in[1], DType::i32).contiguous();
    const Shape& s = x.shape();
    require<ShapeError>(
        (s.rank() == 3 && s[2] % shape_.head_size == 0) || (s.rank() == 4 && s[3] == shape_.head_size),
        "rope: (B, T, heads D) or (B, T, heads, D) with D {}, not {}", shape_.head_size, s.str());
    require<ShapeError>(positions.shape() == Shape({s[0], s[1]}), "rope: positions {} for x {}",
                        positions.shape().str(), s.str());
    shape_.rows = positions.numel();
    shape_.heads = s.rank() == 3 ? s[2] / shape_.head_size : s[2];
    const Tensor y = Tensor::empty(x.context(), s, x.dtype());
    kernels::rope(x.context().stream(), shape_, false, x, positions, y);
    save.tensor(positions, 1u);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    const Tensor dy = ctx.grad().contiguous();
    const Tensor dx = Tensor::empty(ctx.context(), dy.shape(), dy.dtype());
    kernels::rope(ctx.stream(), shape_, true, dy, ctx.saved(0), dx);
    ctx.set_grad(0, dx);
  }

 private:
  kernels::RopeShape shape_;
};

}  // namespace

std::vector<double> rope_frequencies(Index head_size, const RopeOptions& o) {
  require<ValueError>(head_size >= 2 && head_size % 2 == 0 && head_size <= kernels::RopeShape::largest_head,
                      "rope: a head size of {}; even ones from 2 to {} are built", head_size,
                      kernels::RopeShape::largest_head);
  require<ValueError>(o.theta > 0 && std::isfinite(o.theta), "rope: theta {} is not positive", o.theta);
  require<ValueError>(o.scaling == RopeScaling::none || (o.factor > 0 && std::isfinite(o.factor)),
                      "rope: scaling factor {} is not positive", o.factor);
  require<ValueError>(
      o.scaling != RopeScaling::llama3 ||
          (o.low_frequency > 0 && o.high_frequency > o.low_frequency && o.original_positions >= 1),
      "rope: llama3 scaling between {} and {} turns over {} positions", o.low_frequency, o.high_frequency,
      o.original_positions);
  std::vector<double> frequencies;
  for (Index i = 0; i < head_size / 2; ++i) {
    double f = std::pow(o.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
    if (o.scaling == RopeScaling::linear) {
      f /= o.factor;
    } else if (o.scaling == RopeScaling::llama3) {
      const double turns = static_cast<double>(o.original_positions) * f / (2 * std::numbers::pi);
      const double kept =
          std::clamp((turns - o.low_frequency) / (o.high_frequency - o.low_frequency), 0.0, 1.0);
      f = (1 - kept) * f / o.factor + kept * f;
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

Variable rope(const Variable& x, const Variable& positions, Index head_size, const RopeOptions& options) {
  return apply_one<RopeOp>({x, positions}, head_size, options);
}

}  // namespace penstock::ops
