// The version that every program reports and logs.
#pragma once

namespace penstock {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace penstock
