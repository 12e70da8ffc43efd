// A ModelSession of GPT-2.
#pragma once

#include "models/gpt2.h"
#include "models/model_session.h"

namespace penstock::testing {

class Gpt2Session : public ModelSession {
 public:
  explicit Gpt2Session(const Gpt2Config& config, int threads = 1)
      : ModelSession(make_gpt2("test", config), threads) {}
};

}  // namespace penstock::testing
