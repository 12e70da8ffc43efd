// embedding: look-up; its gradient adds the rows of one id in ascending order.
#include "autograd/ops/embedding.h"

#include "autograd/convert.h"
#include "autograd/ops/operands.h"
#include "kernels/embedding.h"

namespace penstock::ops {
namespace {

enum Input : int { ids_, table_ };

class EmbeddingOp final : public Op {
 public:
  std::string_view name() const override { return "embedding"; }

  Tensors forward(std::span<const Tensor> in, Saver& save) override {
    require_indices(name(), "ids", in[ids_]);
    const Tensor ids = converted(in[ids_], DType::i32).contiguous(), table = in[table_].contiguous();
    require_floats(name(), in.subspan(table_));
    require<ShapeError>(table.shape().rank() == 2, "embedding: a table (V, C), not {}", table.shape().str());
    require<ShapeError>(ids.shape().rank() < Shape::max_rank, "embedding: ids {}", ids.shape().str());
    vocabulary_ = table.shape()[0];
    cols_ = table.shape()[1];
    std::vector<Index> sizes(ids.shape().sizes().begin(), ids.shape().sizes().end());
    sizes.push_back(cols_);
    const Tensor y = Tensor::empty(table.context(), Shape(sizes), table.dtype());
    kernels::embedding_forward(table.context().stream(), ids.numel(), cols_, vocabulary_, ids, table, y);
    save.tensor(ids, 1u << table_);
    return {y};
  }

  void backward(BackwardContext& ctx) override {
    require<ValueError>(!ctx.wants(ids_), "embedding: ids have no gradient");
    if (!ctx.wants(table_)) return;
    const Tensor ids = ctx.saved(0), dy = ctx.grad().contiguous();
    const GradientTarget dtable = ctx.target(table_, Shape{vocabulary_, cols_});
    kernels::embedding_backward(ctx.stream(), ids.numel(), cols_, vocabulary_, dtable.accumulate, ids, dy,
                                dtable.tensor);
  }

 private:
  Index vocabulary_ = 0, cols_ = 0;
};

}  // namespace

Variable embedding(const Variable& ids, const Variable& table) {
  return apply_one<EmbeddingOp>({ids, table});
}

}  // namespace penstock::ops
