// Elementwise kernels against scalar formulas in double.
#include "kernels/reference/reference.h"
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

std::vector<Index> sizes() {
  std::vector<Index> all{0};
  all.insert(all.end(), odd_sizes().begin(), odd_sizes().end());
  all.push_back(100003);  // several pieces
  return all;
}

TEST(Elementwise, AddAddIntoAndScale) {
  for (const Index n : sizes()) {
    const auto a = random_floats(n, 1), b = random_floats(n, 2);
    const std::vector<float> factor{-0.37f};
    std::vector<double> sum, scaled;
    for (std::size_t i = 0; i < a.size(); ++i) {
      sum.push_back(static_cast<double>(a[i]) + static_cast<double>(b[i]));
      scaled.push_back(static_cast<double>(factor[0]) * static_cast<double>(a[i]));
    }
    everywhere(
        [&](Stream& stream, int isa) {
          const auto set = static_cast<std::size_t>(isa);
          Buffer<float> y(n), into(b), product(n);
          add_bodies[set](stream, n, in(a), in(b), y);
          add_into_bodies[set](stream, n, in(a), into);
          scale_bodies[set](stream, n, in(factor), in(a), product);
          return Results{y.values(), into.values(), product.values()};
        },
        [&](const Results& r, const std::string& isa) {
          expect_close(r[0], sum, unit, 0, isa + " add");  // one rounding
          expect_close(r[1], sum, unit, 0, isa + " add_into");
          expect_close(r[2], scaled, unit, 0, isa + " scale");
        });
  }
}

TEST(Elementwise, GeluAndItsSlope) {
  for (const Index n : sizes()) {
    const auto x = random_floats(n, 3, 0, 3), dy = random_floats(n, 4);
    std::vector<double> y, dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back(reference::gelu(static_cast<double>(x[i])));
      dx.push_back(reference::gelu_slope(static_cast<double>(x[i])) * static_cast<double>(dy[i]));
    }
    everywhere(
        [&](Stream& stream, int isa) {
          Buffer<float> out(n), grad(n);
          gelu_forward_bodies[static_cast<std::size_t>(isa)](stream, GeluForm::tanh, 1, n, in(x), In{}, out);
          gelu_backward_bodies[static_cast<std::size_t>(isa)](stream, GeluForm::tanh, 1, n, in(x), In{},
                                                              in(dy), grad);
          return Results{out.values(), grad.values()};
        },
        [&](const Results& r, const std::string& isa) {
          // About ten roundings; those of 2u grow by |2u| in the exponential, which is 5 where the slope
          // bends most. The slope is multiplied by |dy| up to 4.5.
          expect_close(r[0], y, 10 * unit, 4 * unit, isa + " gelu");
          expect_close(r[1], dx, 20 * unit, 4.5 * 15 * unit, isa + " gelu slope");
        });
  }
}

// Known fault 6: values at which a naive formula gives NaN or nothing.
TEST(Elementwise, GeluAtTheExtremes) {
  const std::vector<float> x{0.0f, -0.0f, 1e-30f, -1e-30f, 40.0f, -40.0f, 88.0f, -88.0f, 89.0f, -89.0f,
                             1e4f, -1e4f, 1e13f,  -1e13f,  1e20f, -1e20f, 3e38f, -3e38f, inf};
  const auto n = static_cast<Index>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<double> y, dx;
  for (const float v : x) {
    const auto w = static_cast<double>(v);
    y.push_back(w > 20 ? w : w < -20 ? 0.0 : reference::gelu(w));
    dx.push_back(w > 20 ? 1.0 : w < -20 ? 0.0 : reference::gelu_slope(w));
  }
  everywhere(
      [&](Stream& stream, int isa) {
        Buffer<float> out(n), grad(n);
        gelu_forward_bodies[static_cast<std::size_t>(isa)](stream, GeluForm::tanh, 1, n, in(x), In{}, out);
        gelu_backward_bodies[static_cast<std::size_t>(isa)](stream, GeluForm::tanh, 1, n, in(x), In{},
                                                            in(ones), grad);
        return Results{out.values(), grad.values()};
      },
      [&](const Results& r, const std::string& isa) {
        expect_close(r[0], y, 2 * unit, 0, isa + " gelu");
        expect_close(r[1], dx, 2 * unit, 0, isa + " slope");
      });
}

// Known fault 9: NaN must not disappear.
TEST(Elementwise, NanStaysNan) {
  const std::vector<float> x(17, nan), ones(17, 1.0f);
  everywhere(
      [&](Stream& stream, int isa) {
        Buffer<float> out(17, 0.0f), grad(17, 0.0f);
        gelu_forward_bodies[static_cast<std::size_t>(isa)](stream, GeluForm::tanh, 1, 17, in(x), In{}, out);
        gelu_backward_bodies[static_cast<std::size_t>(isa)](stream, GeluForm::tanh, 1, 17, in(x), In{},
                                                            in(ones), grad);
        return Results{out.values(), grad.values()};
      },
      [&](const Results& r, const std::string& isa) {
        for (const auto& values : r)
          for (const float v : values) EXPECT_TRUE(std::isnan(v)) << isa;
      });
}

// A parameter or activation has the same bits wherever a cut of the run puts it: in a vector or in a tail.
TEST(Elementwise, AnElementDoesNotDependOnItsPlace) {
  const Index n = 77;
  const auto x = random_floats(n, 5, 0, 3), dy = random_floats(n, 6);
  for (int isa = 0; isa < isas(); ++isa) {
    const auto set = static_cast<std::size_t>(isa);
    Buffer<float> y(n), dx(n);
    gelu_forward_bodies[set](stream_of(1), GeluForm::tanh, 1, n, in(x), In{}, y);
    gelu_backward_bodies[set](stream_of(1), GeluForm::tanh, 1, n, in(x), In{}, in(dy), dx);
    for (Index i = 0; i < n; ++i) {
      const std::vector<float> one{x[static_cast<std::size_t>(i)]}, dy_one{dy[static_cast<std::size_t>(i)]};
      Buffer<float> y1(1), dx1(1);
      gelu_forward_bodies[set](stream_of(1), GeluForm::tanh, 1, 1, in(one), In{}, y1);
      gelu_backward_bodies[set](stream_of(1), GeluForm::tanh, 1, 1, in(one), In{}, in(dy_one), dx1);
      EXPECT_TRUE(same_bits(y1.data()[0], y.data()[i])) << name_of_isa(isa) << " element " << i;
      EXPECT_TRUE(same_bits(dx1.data()[0], dx.data()[i])) << name_of_isa(isa) << " element " << i;
    }
  }
}

TEST(Elementwise, OtherTypesAreRefused) {
  const std::vector<double> wrong{1.0};
  Buffer<float> y(1);
  const std::string message =
      message_of<ValueError>([&] { gelu_forward(stream_of(1), GeluForm::tanh, 1, 1, in(wrong), In{}, y); });
  EXPECT_NE(message.find("fp32"), std::string::npos) << message;
  EXPECT_NE(message.find("fp64"), std::string::npos) << message;
}

TEST(Elementwise, MetaDoesNothing) {
  ThreadPool pool(1);
  Stream meta(Device{DeviceKind::meta, 0}, pool);
  add(meta, 1 << 30, In(nullptr, DType::f32), In(nullptr, DType::f32), Out(nullptr, DType::f32));
}

}  // namespace
}  // namespace penstock::kernels::test
