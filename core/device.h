// Where tensors live and kernels run.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

/// `meta` has shapes and byte counts but no memory: kernels do nothing there. Shape rules, saved bytes and
/// peak memory of a plan come from running it on `meta`.
enum class DeviceKind : std::uint8_t { cpu, cuda, cuda_host, meta };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

constexpr std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::cuda_host:
      return "cuda-host";
    case DeviceKind::meta:
      return "meta";
  }
  return "?";
}

}  // namespace penstock
