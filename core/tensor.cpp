// Tensor: creation, views, copies.
#include "core/tensor.h"

#include <cstring>

namespace penstock {
namespace {

Tensor::Strides dense_strides(const Shape& shape) {
  Tensor::Strides strides{};
  Index step = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    strides[static_cast<std::size_t>(d)] = step;
    step *= shape[d];
  }
  return strides;
}

/// Copies a strided block of `bytes`-wide elements, innermost dimension last.
void copy_strided(std::byte* to, const Tensor& t, const std::byte* from, const Tensor& f, int dimension) {
  const Index width = size_of(t.dtype());
  const Index n = t.shape()[dimension];
  const Index ts = t.stride(dimension) * width;
  const Index fs = f.stride(dimension) * width;
  if (dimension == t.shape().rank() - 1) {
    if (ts == width && fs == width) {
      std::memcpy(to, from, static_cast<std::size_t>(n * width));
      return;
    }
    for (Index i = 0; i < n; ++i) std::memcpy(to + i * ts, from + i * fs, static_cast<std::size_t>(width));
    return;
  }
  for (Index i = 0; i < n; ++i) copy_strided(to + i * ts, t, from + i * fs, f, dimension + 1);
}

}  // namespace

Tensor Tensor::empty(RankContext& context, const Shape& shape, DType dtype, MemoryKind kind) {
  return view_of(std::make_shared<Storage>(context, checked_product(shape.numel(), size_of(dtype)), kind), 0,
                 shape, dtype);
}

Tensor Tensor::zeros(RankContext& context, const Shape& shape, DType dtype, MemoryKind kind) {
  Tensor result = empty(context, shape, dtype, kind);
  result.fill_zero();
  return result;
}

Tensor Tensor::view_of(std::shared_ptr<Storage> storage, Index offset, const Shape& shape, DType dtype) {
  require<ShapeError>(offset >= 0 && (offset + shape.numel()) * size_of(dtype) <= storage->bytes(),
                      "a view of shape {} at element {} leaves a storage of {} bytes", shape.str(), offset,
                      storage->bytes());
  Tensor result;
  result.storage_ = std::move(storage);
  result.offset_ = offset;
  result.shape_ = shape;
  result.strides_ = dense_strides(shape);
  result.dtype_ = dtype;
  return result;
}

bool Tensor::is_contiguous() const {
  Index step = 1;
  for (int d = shape_.rank() - 1; d >= 0; --d) {
    if (shape_[d] != 1 && strides_[static_cast<std::size_t>(d)] != step) return numel() == 0;
    step *= shape_[d];
  }
  return true;
}

Tensor Tensor::reshape(const Shape& shape) const {
  require<ShapeError>(shape.numel() == numel(), "a tensor of shape {} has no view of shape {}", shape_.str(),
                      shape.str());
  require<ShapeError>(is_contiguous(), "reshape to {} needs a contiguous tensor; call contiguous() first",
                      shape.str());
  Tensor result = *this;
  result.shape_ = shape;
  result.strides_ = dense_strides(shape);
  return result;
}

Tensor Tensor::slice(int dimension, Index begin, Index end, Index step) const {
  const int d = dimension < 0 ? dimension + shape_.rank() : dimension;
  require<ShapeError>(d >= 0 && d < shape_.rank() && 0 <= begin && begin <= end && end <= shape_[d],
                      "slice {}:{} of dimension {} of a tensor of shape {}", begin, end, dimension,
                      shape_.str());
  require<ShapeError>(step >= 1, "slice {}:{} in steps of {}: at least 1 is needed", begin, end, step);
  Tensor result = *this;
  Index& stride = result.strides_[static_cast<std::size_t>(d)];
  result.offset_ += begin * stride;
  result.shape_ = shape_.with(d, div_up(end - begin, step));
  if (result.shape_[d] > 1) stride *= step;
  return result;
}

Tensor Tensor::transpose(int a, int b) const {
  const int rank = shape_.rank();
  a = a < 0 ? a + rank : a;
  b = b < 0 ? b + rank : b;
  require<ShapeError>(a >= 0 && a < rank && b >= 0 && b < rank,
                      "transpose of dimensions {} and {} of a tensor of shape {}", a, b, shape_.str());
  Tensor result = *this;
  result.shape_ = shape_.with(a, shape_[b]).with(b, shape_[a]);
  std::swap(result.strides_[static_cast<std::size_t>(a)], result.strides_[static_cast<std::size_t>(b)]);
  return result;
}

Tensor Tensor::expand(const Shape& shape) const {
  const int added = shape.rank() - shape_.rank();
  require<ShapeError>(added >= 0, "a tensor of shape {} does not expand to {}", shape_.str(), shape.str());
  Tensor result = *this;
  result.shape_ = shape;
  result.strides_ = {};
  for (int d = 0; d < shape_.rank(); ++d) {
    const bool same = shape_[d] == shape[d + added];
    require<ShapeError>(same || shape_[d] == 1, "a tensor of shape {} does not expand to {}", shape_.str(),
                        shape.str());
    result.strides_[static_cast<std::size_t>(d + added)] = same ? strides_[static_cast<std::size_t>(d)] : 0;
  }
  return result;
}

Tensor Tensor::contiguous(MemoryKind kind) const { return is_contiguous() ? *this : clone(kind); }

Tensor Tensor::clone(MemoryKind kind) const {
  Tensor result = empty(context(), shape_, dtype_, kind);
  result.copy_from(*this);
  return result;
}

void Tensor::copy_from(const Tensor& source) {
  require<ShapeError>(source.shape_ == shape_ && source.dtype_ == dtype_,
                      "copy of a {} tensor of shape {} into {} of {}", name_of(source.dtype_),
                      source.shape_.str(), name_of(dtype_), shape_.str());
  changed_in_place();
  if (numel() == 0 || is_meta() || source.is_meta()) return;
  auto* to = static_cast<std::byte*>(data());
  const auto* from = static_cast<const std::byte*>(source.data());
  if (is_contiguous() && source.is_contiguous())
    std::memcpy(to, from, static_cast<std::size_t>(bytes()));
  else
    copy_strided(to, *this, from, source, 0);
}

void Tensor::copy_from_host(const void* source, Index bytes) {
  require<ShapeError>(bytes == this->bytes() && is_contiguous(), "{} bytes copied into a tensor of shape {}",
                      bytes, shape_.str());
  changed_in_place();
  if (bytes > 0 && !is_meta()) std::memcpy(data(), source, static_cast<std::size_t>(bytes));
}

void Tensor::fill_zero() {
  require<ShapeError>(is_contiguous(), "fill_zero needs a contiguous tensor, not a view of shape {}",
                      shape_.str());
  changed_in_place();
  if (numel() > 0 && !is_meta()) std::memset(data(), 0, static_cast<std::size_t>(bytes()));
}

double Tensor::item() const {
  require<ShapeError>(numel() == 1, "item() of a tensor of shape {}", shape_.str());
  require<DeviceError>(!is_meta(), "item() of a tensor on the meta device, which has no values");
  switch (dtype_) {
    case DType::f32:
      return static_cast<double>(*data_as<float>());
    case DType::f64:
      return *data_as<double>();
    case DType::i32:
      return *data_as<std::int32_t>();
    case DType::i64:
      return static_cast<double>(*data_as<std::int64_t>());
    default:
      throw ValueError("item() of a {} tensor", name_of(dtype_));
  }
}

}  // namespace penstock
