// Tensor: a cheap handle on a typed, strided view of a Storage. It knows nothing of gradients.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/rank_context.h"
#include "core/shape.h"

namespace penstock {

class Tensor {
 public:
  using Strides = std::array<Index, Shape::max_rank>;

  Tensor() = default;  ///< no tensor: `defined()` is false

  /// New memory, uninitialised.
  static Tensor empty(RankContext& context, const Shape& shape, DType dtype = DType::f32,
                      MemoryKind kind = MemoryKind::activation);
  static Tensor zeros(RankContext& context, const Shape& shape, DType dtype = DType::f32,
                      MemoryKind kind = MemoryKind::activation);
  /// Copies host values. Throws ShapeError unless `values` has exactly shape.numel() elements.
  template <class T>
  static Tensor from(RankContext& context, const Shape& shape, std::span<const T> values,
                     MemoryKind kind = MemoryKind::activation) {
    require<ShapeError>(static_cast<Index>(values.size()) == shape.numel(),
                        "{} values for a tensor of shape {}", values.size(), shape.str());
    Tensor result = empty(context, shape, dtype_of<T>, kind);
    result.copy_from_host(values.data(), static_cast<Index>(values.size_bytes()));
    return result;
  }
  template <class T>
  static Tensor from(RankContext& context, const Shape& shape, const std::vector<T>& values,
                     MemoryKind kind = MemoryKind::activation) {
    return from<T>(context, shape, std::span<const T>(values), kind);
  }
  /// A view of part of a storage, `offset` in elements.
  static Tensor view_of(std::shared_ptr<Storage> storage, Index offset, const Shape& shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Index numel() const { return shape_.numel(); }
  Index bytes() const { return numel() * size_of(dtype_); }
  Index stride(int dimension) const { return strides_[static_cast<std::size_t>(dimension)]; }
  bool is_contiguous() const;
  bool is_meta() const { return storage_->context().device().kind == DeviceKind::meta; }
  RankContext& context() const { return storage_->context(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  Index offset() const { return offset_; }

  /// Address of the first element; null on the meta device.
  void* data() const { return storage_->data() ? storage_->data() + offset_ * size_of(dtype_) : nullptr; }
  /// The same, typed; throws ValueError when T is not the dtype.
  template <class T>
  T* data_as() const {
    require<ValueError>(dtype_of<T> == dtype_, "a tensor of {} read as {}", name_of(dtype_),
                        name_of(dtype_of<T>));
    return static_cast<T*>(data());
  }

  /// Views of the same storage. Each throws ShapeError when it does not exist.
  Tensor reshape(const Shape& shape) const;  ///< contiguous tensors only
  Tensor slice(int dimension, Index begin, Index end,
               Index step = 1) const;  ///< every step-th of begin..end-1
  Tensor transpose(int a, int b) const;
  Tensor expand(const Shape& shape) const;  ///< size-one and new leading dimensions repeated with stride 0

  /// A contiguous tensor with the same values: itself, or a copy.
  Tensor contiguous(MemoryKind kind = MemoryKind::activation) const;
  Tensor clone(MemoryKind kind = MemoryKind::activation) const;
  void copy_from(const Tensor& source);  ///< same shape and dtype, any strides
  void copy_from_host(const void* source, Index bytes);
  void fill_zero();  ///< contiguous only
  /// What writes over values in another way than the three above says so here. A backward that needs a value
  /// which was changed after its forward then throws, instead of computing with the new one.
  void changed_in_place() const { storage_->changed_in_place(); }
  /// Number of changes so far, in any view of the storage.
  std::uint32_t version() const { return storage_->version(); }

  /// The values on the host, row-major. Throws DeviceError on the meta device.
  template <class T>
  std::vector<T> to_vector() const {
    require<DeviceError>(!is_meta(), "the values of a tensor on the meta device, which has none");
    const Tensor dense = contiguous();
    const T* p = dense.data_as<T>();
    return {p, p + dense.numel()};
  }
  /// The only element as double (fp32, fp64, int32, int64).
  double item() const;

 private:
  std::shared_ptr<Storage> storage_;
  Index offset_ = 0;  // elements
  Shape shape_;
  Strides strides_{};
  DType dtype_ = DType::f32;
};

using Tensors = std::vector<Tensor>;

}  // namespace penstock
