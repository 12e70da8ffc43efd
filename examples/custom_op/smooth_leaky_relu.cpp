// smooth_leaky_relu: keeps its input.
#include "smooth_leaky_relu.h"

#include <cmath>

using namespace penstock;

namespace {

enum Input : int { x_, slope_ };

float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

class SmoothLeakyRelu final : public Op {
 public:
  std::string_view name() const override { return "smooth_leaky_relu"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require<ShapeError>(in[slope_].numel() == 1,
                        "smooth_leaky_relu: a slope of shape {}; one number is wanted",
                        in[slope_].shape().str());
    const Tensor x = in[x_].contiguous(), y = Tensor::empty(x.context(), x.shape());
    if (!x.is_meta()) {  // there are shapes alone while a run is planned
      const float a = in[slope_].data_as<float>()[0], *px = x.data_as<float>();
      float* py = y.data_as<float>();
      for (Index i = 0; i < x.numel(); ++i) py[i] = a * px[i] + (1 - a) * softplus(px[i]);
    }
    save.tensor(x, (1u << x_) | (1u << slope_));  // both gradients need x,
    save.input(slope_, 1u << x_);                 // that of x needs the slope
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    const Tensor x = ctx.saved(0), dy = ctx.grad().contiguous();
    const float *px = x.data_as<float>(), *pdy = dy.data_as<float>();
    if (ctx.wants(x_)) {  // the half that the stage before waits for
      const Tensor slope = ctx.input(slope_), dx = Tensor::empty(ctx.context(), x.shape());
      if (!x.is_meta()) {
        const float a = slope.data_as<float>()[0];
        float* pdx = dx.data_as<float>();
        for (Index i = 0; i < x.numel(); ++i) pdx[i] = pdy[i] * (a + (1 - a) * sigmoid(px[i]));
      }
      ctx.set_grad(x_, dx);
    }
    if (ctx.wants(slope_)) {  // the half that may run at any later time
      double sum = 0;
      if (!x.is_meta())
        for (Index i = 0; i < x.numel(); ++i) sum += double{pdy[i]} * (px[i] - softplus(px[i]));
      ctx.set_grad(slope_, Tensor::from<float>(ctx.context(), {1}, std::vector{static_cast<float>(sum)}));
    }
  }
};

}  // namespace

Variable smooth_leaky_relu(const Variable& x, const Variable& slope) {
  return apply_one<SmoothLeakyRelu>({x, slope});
}
