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

void throw_target_out_of_range(Index row, Index target, Index vocabulary, Index ignored) {
  throw ValueError("cross entropy: target {} in row {} is outside 0..{} and not {} (ignored)", target, row,
                   vocabulary - 1, ignored);
}

void throw_attention(const char* what, Index a, Index b) {
  throw ShapeError("attention: {}: {} and {}", what, a, b);
}

void throw_dropout_probability(float probability) {
  throw ValueError("dropout: the probability {} is outside 0 <= p < 1", probability);
}

void throw_no_such_dtype(const char* kernel, DType given) {
  throw ValueError("the kernel {} has no form for {}", kernel, name_of(given));
}

void throw_index_out_of_range(Index place, Index index, Index rows) {
  throw ValueError("index {} at place {} is outside 0..{}", index, place, rows - 1);
}

void throw_inexact_cast(Index place, double value, DType to) {
  throw ValueError("cast: {} at place {} has no value as {}; integers are converted exactly or not at all",
                   value, place, name_of(to));
}

}  // namespace penstock::kernels::cpu
