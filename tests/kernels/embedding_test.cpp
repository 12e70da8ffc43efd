// Embedding look-up and gradient.
#include "kernels/support.h"

namespace penstock::kernels::test {
namespace {

TEST(Embedding, ForwardAndBackward) {
  for (const Index cols : odd_sizes())
    for (const Index rows : {Index{0}, Index{1}, Index{77}}) {
      const Index vocabulary = 9;  // ids repeat; 0 and 8 never come
      const auto ids = random_ints(rows, 41, 1, 7);
      const auto table = random_floats(vocabulary * cols, 42), dy = random_floats(rows * cols, 43);
      std::vector<double> y, dtable(table.size(), 0.0), onto(table.size(), 4.0);
      for (Index r = 0; r < rows; ++r)
        for (Index c = 0; c < cols; ++c) {
          const auto e = static_cast<std::size_t>(ids[static_cast<std::size_t>(r)] * cols + c);
          y.push_back(static_cast<double>(table[e]));
          dtable[e] += static_cast<double>(dy[static_cast<std::size_t>(r * cols + c)]);
          onto[e] += static_cast<double>(dy[static_cast<std::size_t>(r * cols + c)]);
        }
      everywhere(
          [&](Stream& stream, int isa) {
            const auto set = static_cast<std::size_t>(isa);
            Buffer<float> out(rows * cols), grad(vocabulary * cols), added(vocabulary * cols, 4.0f);
            embedding_forward_bodies[set](stream, rows, cols, vocabulary, in(ids), in(table), out);
            embedding_backward_bodies[set](stream, rows, cols, vocabulary, false, in(ids), in(dy), grad);
            embedding_backward_bodies[set](stream, rows, cols, vocabulary, true, in(ids), in(dy), added);
            return Results{out.values(), grad.values(), added.values()};
          },
          [&](const Results& r, const std::string& isa) {
            expect_close(r[0], y, 0, 0, isa + " forward");
            // At most 77 additions of unit normals, each with a rounding of a sum up to about 20.
            expect_close(r[1], dtable, 77 * unit, 77 * 8 * unit, isa + " backward");
            expect_close(r[2], onto, 77 * unit, 77 * 8 * unit, isa + " backward accumulate");
          },
          1);
    }
}

// For one id the rows ascend: an order that fp32 shows.
TEST(Embedding, RowsAscend) {
  const std::vector<std::int32_t> ids{1, 1, 1};
  const std::vector<float> dy{1.0f, 1e8f, -1e8f};
  everywhere(
      [&](Stream& stream, int isa) {
        Buffer<float> grad(2);
        embedding_backward_bodies[static_cast<std::size_t>(isa)](stream, 3, 1, 2, false, in(ids), in(dy),
                                                                 grad);
        return Results{grad.values()};
      },
      [&](const Results& r, const std::string&) {
        EXPECT_EQ(r[0], (std::vector<float>{0.0f, 0.0f}));
      },
      20);
}

TEST(Embedding, IdsOutsideTheTableAreRefused) {
  const std::vector<float> table(8, 1.0f);
  for (const std::int32_t id : {-1, 4}) {
    const std::vector<std::int32_t> ids{0, 3, id};
    Buffer<float> y(6), grad(8, 5.0f);
    for (const auto& message :
         {message_of<ValueError>([&] { embedding_forward(stream_of(2), 3, 2, 4, in(ids), in(table), y); }),
          message_of<ValueError>(
              [&] { embedding_backward(stream_of(2), 3, 2, 4, false, in(ids), in(table), grad); })}) {
      EXPECT_NE(message.find("id " + std::to_string(id) + " in row 2"), std::string::npos) << message;
      EXPECT_NE(message.find("0..3"), std::string::npos) << message;
    }
    EXPECT_EQ(grad.values(), std::vector<float>(8, 5.0f)) << "touched before the refusal";
  }
}

}  // namespace
}  // namespace penstock::kernels::test
