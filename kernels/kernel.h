// What every kernel declaration needs: typed pointers, and Kernel, the object that picks the device's
// implementation.
//
// A kernel is declared once, as PENSTOCK_KERNEL(name, parameters...) in a header of this folder. Its CPU body
// stands in kernels/cpu/isa/, a file that is compiled once for each instruction set into namespace
// cpu::SET. Kernels never allocate: outputs and workspace are handed in. On the meta device they do
// nothing.
#pragma once

#include <array>
#include <type_traits>

#include "core/tensor.h"

namespace penstock::kernels {

/// Read-only dense data of a stated element type. A contiguous tensor converts; a strided one throws
/// ShapeError.
struct In {
  const void* data = nullptr;
  DType dtype = DType::f32;

  In() = default;
  In(const void* d, DType t) : data(d), dtype(t) {}
  In(const Tensor& t) : data(t.data()), dtype(t.dtype()) {
    require<ShapeError>(t.is_contiguous(),
                        "a kernel needs a contiguous input, not a strided view of shape {}", t.shape().str());
  }
  template <class T>
  const T* as() const {
    require<ValueError>(dtype == dtype_of<T>, "a kernel for {} was given {}", name_of(dtype_of<T>),
                        name_of(dtype));
    return static_cast<const T*>(data);
  }
  explicit operator bool() const { return data != nullptr; }
};

/// The same for results and workspace.
struct Out {
  void* data = nullptr;
  DType dtype = DType::f32;

  Out() = default;
  Out(void* d, DType t) : data(d), dtype(t) {}
  Out(const Tensor& t) : data(t.data()), dtype(t.dtype()) {
    require<ShapeError>(t.is_contiguous(),
                        "a kernel needs a contiguous output, not a strided view of shape {}",
                        t.shape().str());
  }
  template <class T>
  T* as() const {
    require<ValueError>(dtype == dtype_of<T>, "a kernel for {} was given {}", name_of(dtype_of<T>),
                        name_of(dtype));
    return static_cast<T*>(data);
  }
  explicit operator bool() const { return data != nullptr; }
};

/// Instruction sets that the CPU kernels are compiled for.
enum class Isa : int { baseline, avx2, avx512 };
inline constexpr int isa_count = 3;

/// The best set that this processor has and this build holds; PENSTOCK_ISA=baseline|avx2|avx512 in the
/// environment lowers it, so that a test can compare a fast path with the slow one.
Isa active_isa();

[[noreturn]] void throw_no_kernel(const char* kernel, Device device);

/// One kernel: its implementations by device and instruction set.
template <class Signature>
class Kernel;

template <class... Args>
class Kernel<void(Stream&, Args...)> {
 public:
  using Function = void (*)(Stream&, Args...);

  constexpr Kernel(const char* name, std::array<Function, isa_count> cpu) : name_(name), cpu_(cpu) {}

  void operator()(Stream& stream, std::type_identity_t<Args>... args) const {
    switch (stream.device().kind) {
      case DeviceKind::cpu:
        cpu_[static_cast<std::size_t>(active_isa())](stream, args...);
        return;
      case DeviceKind::meta:
        return;
      default:
        throw_no_kernel(name_, stream.device());
    }
  }

 private:
  const char* name_;
  std::array<Function, isa_count> cpu_;
};

}  // namespace penstock::kernels

// kernels/dispatch.cpp gives these two another meaning, and with it the definitions.
#ifndef PENSTOCK_KERNEL
#define PENSTOCK_KERNEL(name, ...) extern const Kernel<void(Stream&, __VA_ARGS__)> name
#define PENSTOCK_LIBRARY_KERNEL(name, ...) extern const Kernel<void(Stream&, __VA_ARGS__)> name
#endif
