// StridedShape: which dimensions of a strided loop can be joined.
#include "kernels/strided.h"

namespace penstock::kernels {

StridedShape strided(const Shape& shape, std::span<const Tensor> operands) {
  require<ValueError>(operands.size() <= StridedShape::max_operands, "a strided loop over {} operands",
                      operands.size());
  for (const Tensor& t : operands)
    require<ShapeError>(t.shape() == shape, "a strided loop over {} with an operand of shape {}", shape.str(),
                        t.shape().str());
  StridedShape result;
  result.numel = shape.numel();
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    // Joins the dimension before it, where every operand steps over that one as over this one's whole length.
    bool joins = result.rank > 0;
    for (std::size_t k = 0; k < operands.size() && joins; ++k)
      joins = result.strides[k][result.rank - 1] == operands[k].stride(d) * shape[d];
    const int place = joins ? result.rank - 1 : result.rank++;
    result.sizes[place] = joins ? result.sizes[place] * shape[d] : shape[d];
    for (std::size_t k = 0; k < operands.size(); ++k) result.strides[k][place] = operands[k].stride(d);
  }
  if (result.rank == 0) result.sizes[result.rank++] = 1;
  return result;
}

}  // namespace penstock::kernels
