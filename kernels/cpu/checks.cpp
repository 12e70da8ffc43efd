// See checks.h.
#include "kernels/cpu/checks.h"

#include "core/error.h"
#include "kernels/cross_entropy.h"

namespace penstock::kernels::cpu {

void throw_wrong_dtype(DType expected, DType given) {
  throw ValueError("a kernel for {} was given {}", name_of(expected), name_of(given));
}

void throw_id_out_of_range(Index row, Index id, Index vocabulary) {
  throw ValueError("embedding: id {} in row {} is outside 0..{}: does the tokenizer fit the model?", id, row,
                   vocabulary - 1);
}

void throw_target_out_of_range(Index row, Index target, Index vocabulary) {
  throw ValueError("cross entropy: target {} in row {} is outside 0..{} and not {} (ignored)", target, row,
                   vocabulary - 1, ignored_target);
}

void throw_attention(const char* what, Index a, Index b) {
  throw ShapeError("attention: {}: {} and {}", what, a, b);
}

void throw_dropout_probability(float probability) {
  throw ValueError("dropout: the probability {} is outside 0 <= p < 1", probability);
}

}  // namespace penstock::kernels::cpu
