// The factory behind --tokenizer.
#include "data/tokenizer/tokenizer.h"

#include "core/error.h"
#include "data/tokenizer/byte_tokenizer.h"

namespace penstock {

std::unique_ptr<Tokenizer> load_tokenizer(std::string_view spec) {
  require<ValueError>(spec == "byte", "--tokenizer {}: tokenizer files are not yet supported; allowed: byte",
                      spec);
  return std::make_unique<ByteTokenizer>();
}

}  // namespace penstock
