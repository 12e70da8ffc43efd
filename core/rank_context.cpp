// RankContext: construction.
#include "core/rank_context.h"

namespace penstock {
namespace {

#ifdef NDEBUG
constexpr bool debug_build = false;
#else
constexpr bool debug_build = true;
#endif

}  // namespace

RankContext::RankContext(const Options& options)
    : options_(options),
      pool_(options.threads),
      stream_(options.device, pool_),
      allocator_(std::make_shared<Allocator>(options.device, options.poison || debug_build)) {
  require<DeviceError>(options.device.kind == DeviceKind::cpu || options.device.kind == DeviceKind::meta,
                       "device {} is not yet built; use cpu", name_of(options.device.kind));
}

}  // namespace penstock
