// What the records of the general ops share: samples of ops of one and two operands, and references that walk
// coordinates.
#pragma once

#include <cmath>

#include "ops/table/record.h"

namespace penstock::testing {

/// Coordinates of an element of a row-major tensor.
inline std::vector<Index> coordinates(const Shape& shape, Index element) {
  std::vector<Index> at(static_cast<std::size_t>(shape.rank()));
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at[static_cast<std::size_t>(d)] = element % shape[d];
    element /= shape[d];
  }
  return at;
}

/// The element at these coordinates; leading ones that the shape lacks are left out, and along a dimension of
/// size 1 all are the same.
inline std::size_t element_at(const Shape& shape, const std::vector<Index>& at) {
  const std::size_t extra = at.size() - static_cast<std::size_t>(shape.rank());
  Index element = 0;
  for (int d = 0; d < shape.rank(); ++d)
    element = element * shape[d] + (shape[d] == 1 ? 0 : at[extra + static_cast<std::size_t>(d)]);
  return static_cast<std::size_t>(element);
}

/// y = f(a, b) where both broadcast to `out`.
template <class Real, class Function>
std::vector<Real> broadcast(const Shape& out, const Shape& a, const std::vector<Real>& va, const Shape& b,
                            const std::vector<Real>& vb, Function f) {
  std::vector<Real> y;
  for (Index i = 0; i < out.numel(); ++i) {
    const auto at = coordinates(out, i);
    y.push_back(f(va[element_at(a, at)], vb[element_at(b, at)]));
  }
  return y;
}

/// Each value changed by f.
template <class Function>
Argument changed(Argument a, Function f) {
  for (double& v : a.values) v = static_cast<double>(static_cast<float>(f(v)));
  return a;
}

/// Values of which no two lie closer than 1/64: the differences of a maximum do not cross a tie. In bf16 that
/// holds of up to 256.
inline Argument distinct(const Shape& shape, Role role = Role::activation) {
  std::vector<float> values;
  const Index n = shape.numel(), step = n % 7919 == 0 ? 1 : 7919;  // 7919 is prime
  for (Index i = 0; i < n; ++i) values.push_back(static_cast<float>((i * step) % n - n / 3) * 0x1p-6f);
  return floats(shape, values, role);
}

/// y = f(x) for any shape; `draw` gives the argument of a name, shape and role.
template <class Apply, class Function, class Draw>
std::vector<Sample> unary_samples(const std::string& op, Apply apply, Function f, Draw draw,
                                  std::vector<float> ends) {
  const auto sample = [&](const std::string& name, Argument x) {
    Sample s;
    s.name = name;
    s.output = x.shape;
    s.arguments = {std::move(x)};
    s.saved_bytes = 0;
    s.apply = [apply](const Variables& in, const StepState*) { return apply(in[0]); };
    set_reference(s, [f]<class Real>(const std::vector<std::vector<Real>>& in) {
      std::vector<Real> y;
      for (const Real v : in[0]) y.push_back(f(v));
      return y;
    });
    return s;
  };
  const auto drawn = [&](const std::string& name, const Shape& shape, Role role = Role::activation) {
    return sample(name, draw(op + "." + name, shape, role));
  };
  std::vector<Sample> all{drawn("odd", Shape{3, 5, 7}),       drawn("one", Shape{1}),
                          drawn("scalar", Shape{}),           drawn("empty", Shape{0, 4}),
                          drawn("size_one", Shape{1, 1, 33}), drawn("of_a_weight", Shape{4, 5}, Role::weight),
                          drawn("large", Shape{3, 40001})};
  for (const Layout layout : {Layout::transposed, Layout::sliced}) {
    all.push_back(drawn(layout == Layout::sliced ? "sliced" : "transposed", Shape{2, 5, 6}));
    all.back().arguments[0].layout = layout;
  }
  const auto n = static_cast<Index>(ends.size());
  all.push_back(sample("repeated", laid_out(floats(Shape{4}, {0.5f, 0.5f, 0.5f, 0.5f}), Layout::repeated)));
  all.push_back(sample("extreme", floats(Shape{n}, ends)));
  return all;
}

/// y = f(a, b) with broadcasting.
template <class Apply, class Function, class Draw>
std::vector<Sample> binary_samples(const std::string& op, Apply apply, Function f, Draw draw,
                                   Index saved_inputs = 0) {
  const auto sample = [&](const std::string& name, const Shape& a, const Shape& b, const Shape& out) {
    Sample s;
    s.name = name;
    s.output = out;
    s.arguments = {draw(op + "." + name + ".a", a, Role::activation),
                   draw(op + "." + name + ".b", b, Role::weight)};
    s.saved_bytes = saved_inputs;
    s.apply = [apply](const Variables& in, const StepState*) { return apply(in[0], in[1]); };
    set_reference(s, [=](const auto& in) { return broadcast(out, a, in[0], b, in[1], f); });
    return s;
  };
  const auto same = [&](const std::string& name, const Shape& shape) {
    return sample(name, shape, shape, shape);
  };
  std::vector<Sample> all{
      same("odd", Shape{3, 5, 7}),
      same("one", Shape{1}),
      same("scalar", Shape{}),
      same("empty", Shape{2, 0, 3}),
      same("size_one", Shape{1, 31, 1}),
      same("large", Shape{3, 40001}),
      // Known fault 7: the gradient of a repeated operand is summed over its repetitions.
      sample("leading", Shape{2, 3, 5}, Shape{3, 5}, Shape{2, 3, 5}),
      sample("row_and_column", Shape{3, 1, 7}, Shape{5, 1}, Shape{3, 5, 7}),
      sample("middle", Shape{2, 1, 7}, Shape{2, 9, 7}, Shape{2, 9, 7}),
      sample("outside", Shape{1, 5, 1}, Shape{4, 5, 6}, Shape{4, 5, 6}),
      sample("with_a_scalar", Shape{4, 33}, Shape{}, Shape{4, 33}),
      sample("of_a_scalar", Shape{}, Shape{17}, Shape{17}),
      sample("alternating", Shape{3, 1, 4, 1, 2}, Shape{1, 5, 1, 6, 1}, Shape{3, 5, 4, 6, 2}),
      sample("empty_broadcast", Shape{3, 1}, Shape{1, 0}, Shape{3, 0}),
      sample("eight_dimensions", Shape{2, 1, 2, 1, 2, 1, 2, 1}, Shape{1, 2, 1, 2, 1, 2, 1, 2},
             Shape{2, 2, 2, 2, 2, 2, 2, 2}),
      sample("tall", Shape{20000, 3}, Shape{3}, Shape{20000, 3}),
  };
  all.back().name = "large_tall";
  Sample views = same("views", Shape{4, 6, 5});
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample mixed = sample("broadcast_views", Shape{4, 6, 5}, Shape{6, 1}, Shape{4, 6, 5});
  mixed.arguments[0].layout = Layout::sliced;
  mixed.arguments[1].layout = Layout::transposed;
  all.push_back(mixed);
  Sample twice = same("same_twice", Shape{2, 9});
  twice.arguments.pop_back();
  twice.saved_bytes = -1;
  twice.apply = [apply](const Variables& in, const StepState*) { return apply(in[0], in[0]); };
  set_reference(twice, [f](const auto& in) {
    auto y = in[0];
    for (auto& v : y) v = f(v, v);
    return y;
  });
  all.push_back(twice);
  return all;
}

/// Draws as `normal` does.
inline Argument draw_normal(const std::string& name, const Shape& shape, Role role) {
  return normal(name, shape, role);
}
/// At least 0.25.
inline Argument draw_positive(const std::string& name, const Shape& shape, Role role) {
  return changed(normal(name, shape, role), [](double v) { return 0.25 + std::abs(v); });
}
/// Either sign, at least 0.25 from 0.
inline Argument draw_away_from_zero(const std::string& name, const Shape& shape, Role role) {
  return changed(normal(name, shape, role), [](double v) { return v + (v < 0 ? -0.25 : 0.25); });
}

}  // namespace penstock::testing
