// at_block_boundary: the identity, recorded as an op over all values of the boundary.
#include "parallel/pipeline/runtime/block_boundary.h"

#include <algorithm>
#include <span>

#include "autograd/op.h"

namespace penstock {
namespace {

class BoundaryOp final : public Op {
 public:
  std::string_view name() const override { return "block boundary"; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    for (const Tensor& t : in) specs_.emplace_back(t.shape(), t.dtype());
    return {in.begin(), in.end()};
  }

  void backward(BackwardContext& ctx) override {
    for (int i = 0; i < static_cast<int>(specs_.size()); ++i) {
      if (!ctx.wants(i)) continue;
      const auto& [shape, dtype] = specs_[static_cast<std::size_t>(i)];
      ctx.set_grad(i, ctx.grad(i).defined() ? ctx.grad(i) : Tensor::zeros(ctx.context(), shape, dtype));
    }
  }

 private:
  std::vector<std::pair<Shape, DType>> specs_;
};

}  // namespace

Variables at_block_boundary(const Variables& values) {
  Variables recorded;
  for (const Variable& v : values)
    if (v.requires_grad()) recorded.push_back(v);
  if (recorded.empty()) return values;
  constexpr std::size_t most = 32;  // inputs of an op
  Variables passed;
  for (std::size_t begin = 0; begin < recorded.size(); begin += most)
    for (const Variable& v :
         apply_op(std::make_unique<BoundaryOp>(),
                  std::span(recorded).subspan(begin, std::min(most, recorded.size() - begin))))
      passed.push_back(v);
  Variables result = values;
  std::size_t next = 0;
  for (Variable& v : result)
    if (v.requires_grad()) v = passed[next++];
  return result;
}

}  // namespace penstock
