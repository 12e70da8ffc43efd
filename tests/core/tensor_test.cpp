// Tensor: views, copies, and what has no view.
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/step_state.h"
#include "support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;
using Floats = std::vector<float>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TensorTest : public ::testing::Test {
 protected:
  /// 0, 1, 2, ... in row-major order.
  Tensor counted(const Shape& shape) {
    Floats values(static_cast<std::size_t>(shape.numel()));
    std::iota(values.begin(), values.end(), 0.0f);
    return Tensor::from(context, shape, values);
  }
  RankContext context;
};

TEST_F(TensorTest, ViewsShareTheStorage) {
  const Tensor t = counted(Shape{2, 3, 4});
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.stride(0), 12);
  const Tensor row = t.slice(0, 1, 2);
  EXPECT_EQ(row.storage(), t.storage());
  EXPECT_EQ(row.offset(), 12);
  EXPECT_TRUE(row.is_contiguous());
  row.data_as<float>()[0] = 99;
  EXPECT_EQ(t.to_vector<float>()[12], 99);
  const Tensor flat = t.reshape(Shape{24});
  EXPECT_EQ(flat.data(), t.data());
  EXPECT_EQ(context.allocator().live().total(), 24 * 4);
}

TEST_F(TensorTest, SliceTransposeAndExpandAgainstIndexing) {
  const Tensor t = counted(Shape{3, 4, 5});
  const Tensor view = t.slice(1, 1, 3).transpose(0, 2).slice(0, 2, 5);  // view[a][b][c] = t[c][1 + b][2 + a]
  EXPECT_EQ(view.shape(), (Shape{3, 2, 3}));
  EXPECT_FALSE(view.is_contiguous());
  Floats wanted;
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 2; ++b)
      for (int c = 0; c < 3; ++c) wanted.push_back(static_cast<float>(c * 20 + (1 + b) * 5 + 2 + a));
  EXPECT_EQ(view.to_vector<float>(), wanted);
  EXPECT_EQ(view.contiguous().to_vector<float>(), wanted);
  EXPECT_NE(view.contiguous().data(), view.data());
  EXPECT_EQ(t.contiguous().data(), t.data()) << "contiguous already: no copy";
  EXPECT_NE(t.clone().data(), t.data());
  EXPECT_EQ(t.transpose(-1, -2).transpose(1, 2).to_vector<float>(), t.to_vector<float>());

  const Tensor column = counted(Shape{2, 1});
  const Tensor wide = column.expand(Shape{3, 2, 2});
  EXPECT_EQ(wide.to_vector<float>(), (Floats{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(wide.stride(0), 0);
  EXPECT_EQ(wide.storage(), column.storage());
}

TEST_F(TensorTest, CopiesBetweenAnyStrides) {
  const Tensor source = counted(Shape{3, 2}).transpose(0, 1);  // (2, 3)
  const Tensor around = Tensor::zeros(context, Shape{4, 5});
  Tensor target = around.slice(0, 1, 3).slice(1, 2, 5);
  target.copy_from(source);
  EXPECT_EQ(target.to_vector<float>(), (Floats{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(around.to_vector<float>(), (Floats{0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 1, 3, 5, 0, 0, 0, 0, 0}));
  Tensor scalar = Tensor::zeros(context, Shape{});
  scalar.copy_from(counted(Shape{5}).slice(0, 3, 4).reshape(Shape{}));
  EXPECT_EQ(scalar.item(), 3.0);
}

TEST_F(TensorTest, SizeOneAndEmptyTensorsAreContiguous) {
  EXPECT_TRUE(
      counted(Shape{4, 3}).slice(0, 0, 1).transpose(0, 1).slice(1, 0, 1).slice(0, 0, 1).is_contiguous());
  EXPECT_TRUE(counted(Shape{4, 1}).transpose(0, 1).is_contiguous());
  const Tensor none = counted(Shape{4, 3}).slice(1, 2, 2);
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_TRUE(none.to_vector<float>().empty());
  EXPECT_EQ(none.reshape(Shape{0, 7}).shape(), (Shape{0, 7}));
  EXPECT_EQ(none.clone().bytes(), 0);
  EXPECT_TRUE(Tensor::zeros(context, Shape{0}).defined());
  EXPECT_FALSE(Tensor().defined());
}

// Known fault 4: a buffer of the wrong length is refused, not read past its end.
TEST_F(TensorTest, RefusesWhatDoesNotExist) {
  const auto refused = [](auto&& call) { return message_of<ShapeError>(call); };
  const Tensor t = counted(Shape{2, 3});
  EXPECT_TRUE(contains(refused([&] {
                         Tensor::from(context, Shape{2, 3}, Floats(5));
                       }),
                       "5 values for a tensor of shape (2, 3)"));
  EXPECT_TRUE(contains(refused([&] { Tensor::from(context, Shape{2, 3}, Floats(7)); }), "7 values"));
  EXPECT_TRUE(contains(refused([&] { t.slice(0, 1, 3); }), "slice 1:3 of dimension 0"));
  EXPECT_TRUE(contains(refused([&] { t.slice(0, 2, 1); }), "slice 2:1"));
  EXPECT_TRUE(contains(refused([&] { t.slice(0, -1, 1); }), "slice -1:1"));
  EXPECT_TRUE(contains(refused([&] { t.slice(2, 0, 1); }), "dimension 2"));
  EXPECT_TRUE(contains(refused([&] { t.transpose(0, 2); }), "transpose of dimensions 0 and 2"));
  EXPECT_TRUE(contains(refused([&] { t.reshape(Shape{5}); }), "no view of shape (5)"));
  EXPECT_TRUE(contains(refused([&] { t.transpose(0, 1).reshape(Shape{6}); }), "needs a contiguous tensor"));
  EXPECT_TRUE(contains(refused([&] { t.expand(Shape{4, 3}); }), "does not expand to (4, 3)"));
  EXPECT_TRUE(contains(refused([&] { t.expand(Shape{3}); }), "does not expand to (3)"));
  EXPECT_TRUE(contains(refused([&] {
                         Tensor(t).copy_from(counted(Shape{3, 2}));
                       }),
                       "copy of a fp32 tensor of shape (3, 2)"));
  EXPECT_TRUE(contains(refused([&] {
                         Tensor(t).copy_from(Tensor::zeros(context, Shape{2, 3}, DType::i32));
                       }),
                       "int32"));
  EXPECT_TRUE(
      contains(refused([&] { t.transpose(0, 1).fill_zero(); }), "fill_zero needs a contiguous tensor"));
  EXPECT_TRUE(contains(refused([&] { t.item(); }), "item() of a tensor of shape (2, 3)"));
  EXPECT_TRUE(contains(refused([&] { Tensor(t).copy_from_host(nullptr, 20); }), "20 bytes copied"));
  EXPECT_TRUE(contains(refused([&] { Tensor::view_of(t.storage(), 1, Shape{6}, DType::f32); }),
                       "leaves a storage of 24 bytes"));
  EXPECT_TRUE(
      contains(refused([&] { Tensor::view_of(t.storage(), -1, Shape{2}, DType::f32); }), "at element -1"));
  EXPECT_TRUE(
      contains(message_of<ValueError>([&] { t.data_as<std::int32_t>(); }), "a tensor of fp32 read as int32"));
}

TEST_F(TensorTest, ItemReadsNumbersOfAllWideTypes) {
  EXPECT_EQ(Tensor::from(context, Shape{1}, std::vector<double>{0.1}).item(), 0.1);
  EXPECT_EQ(Tensor::from(context, Shape{}, std::vector<std::int64_t>{-7}).item(), -7.0);
  EXPECT_EQ(Tensor::from(context, Shape{1, 1}, std::vector<std::int32_t>{9}).item(), 9.0);
}

TEST_F(TensorTest, MetaTensorsHaveShapesButNoValues) {
  RankContext meta({.device = {DeviceKind::meta, 0}});
  const Tensor t = Tensor::from(meta, Shape{2, 3}, Floats(6));
  EXPECT_TRUE(t.is_meta());
  EXPECT_EQ(t.data(), nullptr);
  EXPECT_EQ(t.transpose(0, 1).contiguous().shape(), (Shape{3, 2}));
  EXPECT_EQ(meta.allocator().live().total(), 24);
  Tensor::zeros(meta, Shape{1 << 20, 1 << 20})
      .clone()
      .copy_from(Tensor::empty(meta, Shape{1 << 20, 1 << 20}));
  EXPECT_EQ(meta.allocator().system_allocations(), 0) << "terabytes of shapes";
  EXPECT_TRUE(contains(message_of<DeviceError>([&] { t.to_vector<float>(); }), "meta device"));
  EXPECT_TRUE(
      contains(message_of<DeviceError>([&] { t.slice(0, 0, 1).slice(1, 0, 1).item(); }), "meta device"));
}

TEST_F(TensorTest, AStorageLivesAsLongAsItsLastView) {
  Tensor part;
  {
    const Tensor whole = counted(Shape{100});
    part = whole.slice(0, 10, 12);
  }
  EXPECT_EQ(context.allocator().live()[MemoryKind::activation], 400);
  EXPECT_EQ(part.to_vector<float>(), (Floats{10, 11}));
  part = {};
  EXPECT_EQ(context.allocator().live().total(), 0);
}

TEST_F(TensorTest, TheLossSeedIsAViewOfTheStepState) {
  DeviceStepState state(context);
  state.set({.step = 3, .loss_seed = 0.125f});
  EXPECT_EQ(state.loss_seed().item(), 0.125);
  EXPECT_EQ(state.get()->step, 3);
  state.set({.loss_seed = 0.5f});
  EXPECT_EQ(state.loss_seed().item(), 0.5);
}

}  // namespace
}  // namespace penstock
