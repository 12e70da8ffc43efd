// Views, concat and split.
#include "autograd/ops/shape_ops.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "autograd/ops/operands.h"

namespace penstock::ops {
namespace {

/// A view whose gradient is another view: `view` of x, `back` of the gradient.
template <class View, class Back>
class ViewOp final : public Op {
 public:
  ViewOp(std::string_view name, View view, Back back)
      : name_(name), view_(std::move(view)), back_(std::move(back)) {}

  std::string_view name() const override { return name_; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    shape_ = in[0].shape();
    return {view_(in[0])};
  }

  void backward(BackwardContext& ctx) override {
    if (ctx.wants(0)) ctx.set_grad(0, back_(ctx.grad(), shape_));
  }

 private:
  std::string_view name_;
  View view_;
  Back back_;
  Shape shape_;
};

/// view(x) -> y, back(dy, shape of x) -> dx
template <class View, class Back>
Variable apply_view(const Variable& x, std::string_view name, View view, Back back) {
  return apply_one<ViewOp<View, Back>>({x}, name, std::move(view), std::move(back));
}

Shape resolve(const Shape& from, const std::vector<Index>& sizes) {
  std::vector<Index> result = sizes;
  Index known = 1;
  int open = -1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != -1) {
      require<ShapeError>(sizes[d] >= 0, "reshape: the size {} is negative", sizes[d]);
      known = checked_product(known, sizes[d]);
      continue;
    }
    require<ShapeError>(open < 0, "reshape: two sizes of {} are -1", fmt::join(sizes, ", "));
    open = static_cast<int>(d);
  }
  if (open >= 0) {
    require<ShapeError>(known > 0 && from.numel() % known == 0, "reshape: {} has no shape ({})", from.str(),
                        fmt::join(sizes, ", "));
    result[static_cast<std::size_t>(open)] = from.numel() / known;
  }
  const Shape shape(result);
  require<ShapeError>(shape.numel() == from.numel(), "reshape: {} has {} elements, ({}) has {}", from.str(),
                      from.numel(), fmt::join(sizes, ", "), shape.numel());
  return shape;
}

Tensor permuted(const Tensor& x, std::vector<int> order) {
  Tensor result = x;  // the order of x's dimensions that `result` has is built up by exchanges
  std::vector<int> now(order.size());
  for (std::size_t d = 0; d < now.size(); ++d) now[d] = static_cast<int>(d);
  for (std::size_t d = 0; d < order.size(); ++d) {
    std::size_t from = d;
    while (now[from] != order[d]) ++from;
    result = result.transpose(static_cast<int>(d), static_cast<int>(from));
    std::swap(now[d], now[from]);
  }
  return result;
}

class ConcatOp final : public Op {
 public:
  explicit ConcatOp(int dimension) : dimension_(dimension) {}

  std::string_view name() const override { return "concat"; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    d_ = axis_of(name(), in[0].shape(), dimension_);
    Index total = 0;
    sizes_.clear();
    for (const Tensor& part : in) {
      require<ShapeError>(part.shape().rank() == in[0].shape().rank() &&
                              part.shape().with(d_, in[0].shape()[d_]) == in[0].shape(),
                          "concat: {} and {} along dimension {}", in[0].shape().str(), part.shape().str(),
                          dimension_);
      require<ValueError>(part.dtype() == in[0].dtype(), "concat: {} and {}", name_of(in[0].dtype()),
                          name_of(part.dtype()));
      sizes_.push_back(part.shape()[d_]);
      total += part.shape()[d_];
    }
    const Tensor y = Tensor::empty(in[0].context(), in[0].shape().with(d_, total), in[0].dtype());
    Index begin = 0;
    for (const Tensor& part : in) {
      y.slice(d_, begin, begin + part.shape()[d_]).copy_from(part);
      begin += part.shape()[d_];
    }
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    Index begin = 0;
    for (std::size_t i = 0; i < sizes_.size(); begin += sizes_[i++])
      if (ctx.wants(static_cast<int>(i)))
        ctx.set_grad(static_cast<int>(i), ctx.grad().slice(d_, begin, begin + sizes_[i]));
  }

 private:
  int dimension_, d_ = 0;
  std::vector<Index> sizes_;
};

class SplitOp final : public Op {
 public:
  SplitOp(std::vector<Index> sizes, int dimension) : dimension_(dimension), sizes_(std::move(sizes)) {}

  std::string_view name() const override { return "split"; }

  Tensors forward(std::span<const Tensor> in, Saver&) override {
    shape_ = in[0].shape();
    d_ = axis_of(name(), shape_, dimension_);
    Index begin = 0;
    Tensors parts;
    for (const Index size : sizes_) {
      require<ShapeError>(size >= 0 && begin + size <= shape_[d_],
                          "split: parts of ({}) of dimension {} of {}", fmt::join(sizes_, ", "), dimension_,
                          shape_.str());
      parts.push_back(in[0].slice(d_, begin, begin + size));
      begin += size;
    }
    require<ShapeError>(begin == shape_[d_] && !parts.empty(), "split: parts of ({}) of dimension {} of {}",
                        fmt::join(sizes_, ", "), dimension_, shape_.str());
    return parts;
  }

  void backward(BackwardContext& ctx) override {
    if (!ctx.wants(0)) return;
    Tensor dx;
    Index begin = 0;
    for (std::size_t k = 0; k < sizes_.size(); begin += sizes_[k++]) {
      const Tensor& dy = ctx.grad(static_cast<int>(k));
      if (!dy.defined()) continue;  // nothing depends on this part
      if (!dx.defined()) dx = Tensor::zeros(ctx.context(), shape_, dy.dtype());
      dx.slice(d_, begin, begin + sizes_[k]).copy_from(dy);
    }
    ctx.set_grad(0, dx);
  }

 private:
  int dimension_, d_ = 0;
  std::vector<Index> sizes_;
  Shape shape_;
};

}  // namespace

Variable reshape(const Variable& x, const std::vector<Index>& sizes) {
  return apply_view(
      x, "reshape", [=](const Tensor& t) { return t.contiguous().reshape(resolve(t.shape(), sizes)); },
      [](const Tensor& dy, const Shape& shape) { return dy.contiguous().reshape(shape); });
}

Variable transpose(const Variable& x, int a, int b) {
  return apply_view(
      x, "transpose",
      [=](const Tensor& t) {
        return t.transpose(axis_of("transpose", t.shape(), a), axis_of("transpose", t.shape(), b));
      },
      [=](const Tensor& dy, const Shape&) { return dy.transpose(a, b); });
}

Variable permute(const Variable& x, const std::vector<int>& order) {
  const auto check = [=](const Shape& shape) {
    Axes seen;
    std::vector<int> axes;
    for (const int axis : order) {
      axes.push_back(axis_of("permute", shape, axis));
      seen.set(static_cast<std::size_t>(axes.back()));
    }
    require<ShapeError>(static_cast<int>(order.size()) == shape.rank() && seen.count() == order.size(),
                        "permute: the order ({}) of the dimensions of {}", fmt::join(order, ", "),
                        shape.str());
    return axes;
  };
  return apply_view(
      x, "permute", [=](const Tensor& t) { return permuted(t, check(t.shape())); },
      [=](const Tensor& dy, const Shape& shape) {
        const std::vector<int> axes = check(shape);
        std::vector<int> back(axes.size());
        for (std::size_t d = 0; d < axes.size(); ++d)
          back[static_cast<std::size_t>(axes[d])] = static_cast<int>(d);
        return permuted(dy, back);
      });
}

Variable slice(const Variable& x, int dimension, Index begin, Index end, Index step) {
  return apply_view(
      x, "slice",
      [=](const Tensor& t) {
        const int d = axis_of("slice", t.shape(), dimension);
        require<ShapeError>(0 <= begin && begin <= end && end <= t.shape()[d] && step >= 1,
                            "slice: {}:{} in steps of {} of dimension {} of {}", begin, end, step, dimension,
                            t.shape().str());
        return t.slice(d, begin, end, step);
      },
      [=](const Tensor& dy, const Shape& shape) {
        Tensor dx = Tensor::zeros(dy.context(), shape, dy.dtype());
        dx.slice(dimension, begin, end, step).copy_from(dy);
        return dx;
      });
}

Variable expand(const Variable& x, const Shape& shape) {
  return apply_view(
      x, "expand",
      [=](const Tensor& t) {
        require<ShapeError>(broadcast_shape("expand", t.shape(), shape) == shape, "expand: {} to {}",
                            t.shape().str(), shape.str());
        return t.expand(shape);
      },
      [](const Tensor& dy, const Shape& from) { return sum_to(dy, from); });
}

Variable concat(const Variables& parts, int dimension) {
  require<ValueError>(!parts.empty(), "concat: of nothing");
  constexpr std::size_t most = 32;  // inputs of an op
  if (parts.size() > most) {
    Variables joined;
    for (std::size_t begin = 0; begin < parts.size(); begin += most)
      joined.push_back(
          concat({parts.begin() + static_cast<std::ptrdiff_t>(begin),
                  parts.begin() + static_cast<std::ptrdiff_t>(std::min(begin + most, parts.size()))},
                 dimension));
    return concat(joined, dimension);
  }
  return apply_op(std::make_unique<ConcatOp>(dimension), parts)[0];
}

Variables split(const Variable& x, const std::vector<Index>& sizes, int dimension) {
  return apply_op(std::make_unique<SplitOp>(sizes, dimension), {&x, 1});
}

}  // namespace penstock::ops
