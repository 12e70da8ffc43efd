// The op table: one record an op, in a file of its own beside this folder. From it come the tests against the
// scalar reference, the gradient check, the bit-equality, determinism and meta-device tests, and the
// benchmark. Adding an op is adding such a file; nothing lists them.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/op.h"
#include "core/step_state.h"

namespace penstock::testing {

/// What an argument is to the tape.
enum class Role : std::uint8_t {
  activation,  ///< a stage input with a gradient
  weight,      ///< a parameter, reached by handle
  data,        ///< a constant: ids, targets
};

/// How an argument lies in memory.
enum class Layout : std::uint8_t {
  dense,
  transposed,  ///< the last two dimensions are stored in the other order
  sliced,      ///< rows and columns cut out of a larger tensor that holds NaN elsewhere
  repeated,    ///< stride 0 in the first dimension (its values must repeat)
};

struct Argument {
  Shape shape;
  std::vector<double> values;  ///< each exact in `dtype`
  Role role = Role::activation;
  DType dtype = DType::f32;
  Layout layout = Layout::dense;

  bool differentiable() const { return role != Role::data; }
};

/// One set of inputs of an op.
struct Sample {
  std::string name;
  std::vector<Argument> arguments;
  Shape output;          ///< shape that the op must give
  double magnitude = 1;  ///< multiplies the absolute part of the tolerance: the size of what is computed with
  Index saved_bytes =
      -1;  ///< what the tape keeps besides inputs and outputs, where every input is dense; -1: not stated
  bool view = false;          ///< the output shares its input's memory
  double gradient_slack = 1;  ///< multiplies the tolerance of gradients, where the inputs lose digits
  DType dtype = DType::f32;   ///< that the op computes with
  bool fp32_alone = false;    ///< says nothing in bf16, where its values are no longer apart
  double step = 0;            ///< of finite differences; 0: 1e-6 of the element, at least 1e-6

  /// The op. `state` lies on the device.
  std::function<Variable(const Variables&, const StepState* state)> apply;
  /// The scalar reference in double, on which finite differences are taken, and in fp32.
  std::function<std::vector<double>(const std::vector<std::vector<double>>&)> reference;
  std::function<std::vector<float>(const std::vector<std::vector<float>>&)> reference_fp32;
};

/// |op - reference| <= relative |reference| + absolute x magnitude for outputs; for a gradient the error is
/// at most `gradient` times the largest magnitude in its tensor.
struct Tolerance {
  DType dtype = DType::f32;
  double relative = 0, absolute = 0, gradient = 0;
  std::string_view reason;
};

/// A tolerance in bf16, in roundings: 2^-8, half the distance between neighbours of 8 bits.
inline Tolerance in_bf16(double relative, double absolute, double gradient, std::string_view reason) {
  return {DType::bf16, relative * 0x1p-8, absolute * 0x1p-8, gradient * 0x1p-8, reason};
}

/// A call that the op must refuse.
struct Refusal {
  std::string name;
  std::function<void(RankContext&)> call;
  std::string message;  ///< part of what it says
};

struct OpRecord {
  std::string name;
  /// fp32 first. bf16 is added where an op computes with it and each number is rounded once; an op that
  /// stores more on the way states its own.
  std::vector<Tolerance> tolerances;
  std::function<std::vector<Sample>()> samples;
  /// Sizes as a GPT-2 of 124 million parameters has them, for the benchmark.
  std::function<std::vector<Sample>()> benchmarks;
  std::vector<Refusal> refusals;
  bool fp32_alone = false;  ///< has no form in bf16
};

/// What the op is held to in fp32 or bf16.
Tolerance tolerance_of(const OpRecord& op, DType dtype);
/// The dtypes that the op computes with.
std::vector<DType> dtypes_of(const OpRecord& op);
/// Samples with all fp32 arguments in `dtype`, values rounded to it; without those that say nothing there.
std::vector<Sample> in_dtype(std::vector<Sample> samples, DType dtype);
/// A number as `dtype` (fp32 or bf16) holds it.
double rounded(double value, DType dtype);

/// How a test's name shows a record.
inline void PrintTo(const OpRecord& record, std::ostream* out) { *out << record.name; }

/// All records, by name.
const std::vector<OpRecord>& op_table();

/// For a global: puts a record into the table.
struct RegisterOp {
  explicit RegisterOp(OpRecord record);
};

/// `Reference` takes std::vector<std::vector<Real>> and gives std::vector<Real>, for Real float and double.
template <class Reference>
void set_reference(Sample& sample, Reference reference) {
  sample.reference = [reference](const std::vector<std::vector<double>>& in) { return reference(in); };
  sample.reference_fp32 = [reference](const std::vector<std::vector<float>>& in) { return reference(in); };
}

/// Normal numbers from Philox, keyed by `name`.
Argument normal(const std::string& name, const Shape& shape, Role role = Role::activation, double mean = 0,
                double deviation = 1);
/// Given fp32 values.
Argument floats(const Shape& shape, const std::vector<float>& values, Role role = Role::activation);
/// int32 values below `bound`, from Philox.
Argument ids(const std::string& name, const Shape& shape, Index bound);
/// Given int32 values.
Argument int32s(const Shape& shape, const std::vector<double>& values);
/// Given int64 values.
Argument int64s(const Shape& shape, const std::vector<double>& values);
/// Given uint8 values.
Argument flags(const Shape& shape, const std::vector<double>& values);
/// The same argument, laid out otherwise.
Argument laid_out(Argument argument, Layout layout);

/// An argument as a tensor of `context` in its own layout.
Tensor make_tensor(RankContext& context, const Argument& argument);
/// A tensor of any fp32 values, for refusals.
Variable some(RankContext& context, const Shape& shape, DType dtype = DType::f32);

}  // namespace penstock::testing
