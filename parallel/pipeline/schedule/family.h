// What the generators share: checked options and an empty plan to fill.
#pragma once

#include <string>

#include "parallel/pipeline/schedule/generate.h"

namespace penstock {

/// The empty plan of a synchronous scheme with one chunk a rank on the linear placement: everything but the
/// actions. Throws ValueError where `options` ask for chunks, replicas or steps that such a scheme does not
/// have.
Plan linear_plan(const std::string& schedule, const GenerateOptions& options);

}  // namespace penstock
