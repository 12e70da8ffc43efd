// The op table: registration, and arguments as tensors.
#include "ops/table/record.h"

#include <algorithm>
#include <limits>

#include "core/random.h"

namespace penstock::testing {
namespace {

std::vector<OpRecord>& table() {
  static std::vector<OpRecord> records;
  return records;
}

RandomKey key_of(const std::string& name) { return random_key(2024, RandomPurpose::test, name); }

template <class T>
Tensor dense_tensor(RankContext& context, const Shape& shape, const std::vector<double>& values) {
  std::vector<T> typed;
  typed.reserve(values.size());
  for (const double v : values)
    if constexpr (std::is_same_v<T, bf16>)
      typed.push_back(bf16(static_cast<float>(v)));
    else
      typed.push_back(static_cast<T>(v));
  return Tensor::from(context, shape, typed, MemoryKind::parameter);
}

Tensor dense_tensor(RankContext& context, const Shape& shape, const std::vector<double>& values,
                    DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dense_tensor<float>(context, shape, values);
    case DType::bf16:
      return dense_tensor<bf16>(context, shape, values);
    case DType::i32:
      return dense_tensor<std::int32_t>(context, shape, values);
    case DType::i64:
      return dense_tensor<std::int64_t>(context, shape, values);
    case DType::u8:
      return dense_tensor<std::uint8_t>(context, shape, values);
    default:
      throw ValueError("an argument of {}", name_of(dtype));
  }
}

/// What lies around a slice: no sum, no look-up survives it.
Tensor poisoned(RankContext& context, const Shape& shape, DType dtype) {
  const double value = dtype == DType::f32 || dtype == DType::bf16 ? std::numeric_limits<double>::quiet_NaN()
                       : dtype == DType::u8                        ? 255
                                                                   : -1e9;
  return dense_tensor(context, shape, std::vector<double>(static_cast<std::size_t>(shape.numel()), value),
                      dtype);
}

}  // namespace

const std::vector<OpRecord>& op_table() { return table(); }

Tolerance tolerance_of(const OpRecord& op, DType dtype) {
  for (const Tolerance& t : op.tolerances)
    if (t.dtype == dtype) return t;
  constexpr double rounding = 0x1p-8;  // half of the distance between neighbours, of 8 bits
  const Tolerance& fp32 = op.tolerances[0];
  return {dtype, rounding + fp32.relative, fp32.absolute, rounding + fp32.gradient,
          "computed as in fp32, rounded to bf16 once"};
}

std::vector<DType> dtypes_of(const OpRecord& op) {
  if (op.fp32_alone) return {DType::f32};
  return {DType::f32, DType::bf16};
}

double rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  return static_cast<double>(dtype == DType::bf16 ? static_cast<float>(bf16(single)) : single);
}

std::vector<Sample> in_dtype(std::vector<Sample> samples, DType dtype) {
  if (dtype == DType::f32) return samples;
  std::erase_if(samples, [](const Sample& s) { return s.fp32_alone; });
  for (Sample& sample : samples) {
    sample.dtype = dtype;
    sample.name += " in bf16";
    for (Argument& a : sample.arguments) {
      if (a.dtype != DType::f32) continue;
      a.dtype = dtype;
      for (double& v : a.values) v = rounded(v, dtype);
    }
  }
  return samples;
}

RegisterOp::RegisterOp(OpRecord record) {
  std::vector<OpRecord>& records = table();
  const auto after = [](const OpRecord& a, const OpRecord& b) { return a.name < b.name; };
  records.insert(std::upper_bound(records.begin(), records.end(), record, after), record);
}

Argument normal(const std::string& name, const Shape& shape, Role role, double mean, double deviation) {
  std::vector<float> drawn(static_cast<std::size_t>(shape.numel()));
  fill_normal(key_of(name), 0, 0, 0, shape.numel(), mean, deviation, drawn.data());
  return floats(shape, drawn, role);
}

Argument floats(const Shape& shape, const std::vector<float>& values, Role role) {
  require<ValueError>(static_cast<Index>(values.size()) == shape.numel(), "{} values for shape {}",
                      values.size(), shape.str());
  return {shape, {values.begin(), values.end()}, role, DType::f32, Layout::dense};
}

Argument ids(const std::string& name, const Shape& shape, Index bound) {
  std::vector<double> values;
  for (Index i = 0; i < shape.numel(); ++i) {
    const std::uint32_t word = philox_element(key_of(name), 0, 0, static_cast<std::uint64_t>(i));
    values.push_back(
        static_cast<double>(random_below(std::uint64_t{word} << 32, static_cast<std::uint64_t>(bound))));
  }
  return int32s(shape, values);
}

Argument int32s(const Shape& shape, const std::vector<double>& values) {
  return {shape, values, Role::data, DType::i32, Layout::dense};
}

Argument int64s(const Shape& shape, const std::vector<double>& values) {
  return {shape, values, Role::data, DType::i64, Layout::dense};
}

Argument flags(const Shape& shape, const std::vector<double>& values) {
  return {shape, values, Role::data, DType::u8, Layout::dense};
}

Argument laid_out(Argument argument, Layout layout) {
  argument.layout = layout;
  return argument;
}

Tensor make_tensor(RankContext& context, const Argument& a) {
  const Tensor dense = dense_tensor(context, a.shape, a.values, a.dtype);
  const int rank = a.shape.rank();
  switch (a.layout) {
    case Layout::dense:
      return dense;
    case Layout::transposed:
      return dense.transpose(-1, -2).clone(MemoryKind::parameter).transpose(-1, -2);
    case Layout::repeated:
      return dense.slice(0, 0, 1).clone(MemoryKind::parameter).expand(a.shape);
    case Layout::sliced: {
      const Shape around = a.shape.with(0, a.shape[0] + 3)
                               .with(rank - 1, (rank == 1 ? a.shape[0] + 3 : a.shape[rank - 1]) + 2);
      Tensor view = poisoned(context, around, a.dtype).slice(0, 1, 1 + a.shape[0]);
      if (rank > 1) view = view.slice(rank - 1, 2, 2 + a.shape[rank - 1]);
      view.copy_from(dense);
      return view;
    }
  }
  return dense;
}

Variable some(RankContext& context, const Shape& shape, DType dtype) {
  return Variable(Tensor::zeros(context, shape, dtype));
}

}  // namespace penstock::testing
