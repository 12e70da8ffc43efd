// Defines every kernel object: the declarations are read once more with the macro meaning "declare the bodies
// of all instruction sets, then define the object that points to them". Everything here is
// constant-initialised.
#include <cstdlib>
#include <cstring>

#include "kernels/kernel.h"

#undef PENSTOCK_KERNEL
#undef PENSTOCK_LIBRARY_KERNEL
#if PENSTOCK_X86_ISAS
#define PENSTOCK_KERNEL(name, ...)                                     \
  namespace cpu::baseline {                                            \
  void name(Stream&, __VA_ARGS__);                                     \
  }                                                                    \
  namespace cpu::avx2 {                                                \
  void name(Stream&, __VA_ARGS__);                                     \
  }                                                                    \
  namespace cpu::avx512 {                                              \
  void name(Stream&, __VA_ARGS__);                                     \
  }                                                                    \
  extern const Kernel<void(Stream&, __VA_ARGS__)> name;                \
  constinit const Kernel<void(Stream&, __VA_ARGS__)> name {            \
#name, { cpu::baseline::name, cpu::avx2::name, cpu::avx512::name } \
  }
#else
#define PENSTOCK_KERNEL(name, ...)                                           \
  namespace cpu::baseline {                                                  \
  void name(Stream&, __VA_ARGS__);                                           \
  }                                                                          \
  extern const Kernel<void(Stream&, __VA_ARGS__)> name;                      \
  constinit const Kernel<void(Stream&, __VA_ARGS__)> name {                  \
#name, { cpu::baseline::name, cpu::baseline::name, cpu::baseline::name } \
  }
#endif
#define PENSTOCK_LIBRARY_KERNEL(name, ...)                  \
  namespace cpu {                                           \
  void name(Stream&, __VA_ARGS__);                          \
  }                                                         \
  extern const Kernel<void(Stream&, __VA_ARGS__)> name;     \
  constinit const Kernel<void(Stream&, __VA_ARGS__)> name { \
#name, { cpu::name, cpu::name, cpu::name }              \
  }

#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/indexing.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/panel.h"
#include "kernels/reduce.h"
#include "kernels/reduction.h"
#include "kernels/rope.h"
#include "kernels/softmax.h"
#include "kernels/strided.h"
#include "kernels/swiglu.h"

namespace penstock::kernels {
namespace {

Isa choose_isa() {
  Isa best = Isa::baseline;
#if PENSTOCK_X86_ISAS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    best = Isa::avx2;
  if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    best = Isa::avx512;
  if (const char* wish = std::getenv("PENSTOCK_ISA")) {
    if (std::strcmp(wish, "baseline") == 0) best = Isa::baseline;
    if (std::strcmp(wish, "avx2") == 0 && best == Isa::avx512) best = Isa::avx2;
  }
#endif
  return best;
}

}  // namespace

Isa active_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

void throw_no_kernel(const char* kernel, Device device) {
  throw DeviceError("{}: no kernel for device {} in this build", kernel, name_of(device.kind));
}

}  // namespace penstock::kernels
