// Op record: embedding.
#include "autograd/ops/embedding.h"

#include "ops/table/record.h"

namespace penstock::testing {
namespace {

Sample embedding_sample(const std::string& name, Argument id, Index vocabulary, Index cols) {
  Sample s;
  s.name = name;
  std::vector<Index> sizes(id.shape.sizes().begin(), id.shape.sizes().end());
  sizes.push_back(cols);
  s.output = Shape(sizes);
  s.arguments = {std::move(id), normal(name + ".table", Shape{vocabulary, cols}, Role::weight)};
  s.saved_bytes = 0;
  s.apply = [](const Variables& in, const StepState*) { return ops::embedding(in[0], in[1]); };
  set_reference(s, [cols](const auto& in) {
    auto y = in[1];
    y.clear();
    for (const auto row : in[0]) {
      const auto begin = in[1].begin() + static_cast<Index>(row) * cols;
      y.insert(y.end(), begin, begin + cols);
    }
    return y;
  });
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> all{
      embedding_sample("odd", ids("embedding.odd", Shape{3, 7}, 11), 11, 5),
      embedding_sample("first_and_last", int32s(Shape{2}, {0, 6}), 7, 3),
      embedding_sample("one_id_often", int32s(Shape{5, 2}, {3, 3, 3, 3, 3, 3, 1, 3, 3, 3}), 4, 9),
      embedding_sample("one", int32s(Shape{1}, {0}), 1, 1),
      embedding_sample("scalar_id", int32s(Shape{}, {2}), 3, 4),
      embedding_sample("no_ids", int32s(Shape{2, 0}, {}), 3, 4),
      embedding_sample("large", ids("embedding.large", Shape{4, 130}, 50), 50, 70),
  };
  Sample views = embedding_sample("views", ids("embedding.views", Shape{4, 6}, 9), 9, 5);
  views.arguments[0].layout = Layout::transposed;
  views.arguments[1].layout = Layout::sliced;
  all.push_back(views);
  Sample repeated = embedding_sample("repeated", int32s(Shape{3, 2}, {4, 1, 4, 1, 4, 1}), 5, 3);
  repeated.arguments[0].layout = Layout::repeated;
  repeated.arguments[1].layout = Layout::transposed;
  all.push_back(repeated);
  return all;
}

const RegisterOp record({
    .name = "embedding",
    .tolerances = {{DType::f32, 0, 0, 1e-6,
                    "a copy; the gradient adds the rows of one id, at most about 10"}},
    .samples = samples,
    .benchmarks =
        [] {
          return std::vector<Sample>{
              embedding_sample("wte_8x1024", ids("embedding.wte", Shape{8, 1024}, 50257), 50257, 768)};
        },
    .refusals = {{"id_too_large",
                  [](RankContext& c) {
                    ops::embedding(Variable(make_tensor(c, int32s(Shape{3}, {0, 1, 5}))), some(c, {5, 2}));
                  },
                  "id 5 in row 2 is outside 0..4"},
                 {"id_negative",
                  [](RankContext& c) {
                    ops::embedding(Variable(make_tensor(c, int32s(Shape{1}, {-1}))), some(c, {5, 2}));
                  },
                  "id -1 in row 0"},
                 {"no_table",
                  [](RankContext& c) {
                    ops::embedding(some(c, {3}, DType::i32), some(c, {0, 2}));
                  },
                  "id 0 in row 0"},
                 {"ids_of_uint8",
                  [](RankContext& c) {
                    ops::embedding(some(c, {3}, DType::u8), some(c, {5, 2}));
                  },
                  "embedding: ids are int32 or int64, not uint8"},
                 {"table_of_one_dimension",
                  [](RankContext& c) { ops::embedding(some(c, {3}, DType::i32), some(c, {5})); },
                  "embedding: a table (V, C), not (5)"},
                 {"too_many_dimensions",
                  [](RankContext& c) {
                    ops::embedding(some(c, {1, 1, 1, 1, 1, 1, 1, 1}, DType::i32), some(c, {5, 2}));
                  },
                  "embedding: ids (1, 1, 1, 1, 1, 1, 1, 1)"},
                 {"table_dtype",
                  [](RankContext& c) {
                    ops::embedding(some(c, {3}, DType::i32), some(c, {5, 2}, DType::f16));
                  },
                  "fp16"},
                 {"no_value", [](RankContext& c) { ops::embedding(some(c, {3}, DType::i32), Variable()); },
                  "embedding: input 1 has no value"}},
});

}  // namespace
}  // namespace penstock::testing
