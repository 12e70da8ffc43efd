// Rows of tokens, token files and the corpus: every kind of input, and every kind that must be refused.
#include "data/corpus.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;
using testing::TempFolder;
using Ids = std::vector<std::int32_t>;
using Paths = std::vector<std::filesystem::path>;

Ids ids_of(const TokenRow& row) {
  Ids ids(static_cast<std::size_t>(row.size()));
  row.copy(0, row.size(), ids.data());
  return ids;
}

template <class Id>
std::string raw(const std::vector<Id>& ids) {
  std::string bytes(ids.size() * sizeof(Id), '\0');
  std::memcpy(bytes.data(), ids.data(), bytes.size());
  return bytes;
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> words(256, 0);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return raw(words);
}

CorpusOptions bytes_options() {
  static const auto tokenizer = load_tokenizer("byte");
  CorpusOptions options;
  options.tokenizer = tokenizer.get();
  return options;
}

// A text file's bytes as the byte tokenizer's ids.
Ids bytes(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(TokenRow, EveryCutOfSegmentsOfAllWidths) {
  TokenRow row(Ids{1, 2, 255});
  row.append(TokenRow(Ids{}));
  row.append(TokenRow(Ids{256, 65535}));
  row.append(TokenRow(Ids{65536, 2147483647, 0}));
  row.append(row);
  Ids whole{1, 2, 255, 256, 65535, 65536, 2147483647, 0};
  whole.insert(whole.end(), whole.begin(), whole.begin() + 8);
  ASSERT_EQ(row.size(), 16);
  for (std::int64_t begin = 0; begin <= 16; ++begin) {
    for (std::int64_t end = begin; end <= 16; ++end) {
      const Ids expected(whole.begin() + begin, whole.begin() + end);
      Ids got(static_cast<std::size_t>(end - begin));
      row.copy(begin, end - begin, got.data());
      ASSERT_EQ(got, expected);
      ASSERT_EQ(ids_of(row.slice(begin, end)), expected);
    }
  }
  EXPECT_EQ(ids_of(row.slice(2, 12).slice(1, 9)), Ids(whole.begin() + 3, whole.begin() + 11));
  Ids out(20);
  EXPECT_THROW(row.copy(15, 2, out.data()), ValueError);
  EXPECT_THROW(row.copy(-1, 2, out.data()), ValueError);
  EXPECT_THROW(row.copy(1, INT64_MAX, out.data()), ValueError);
  EXPECT_THROW(row.slice(3, 2), ValueError);
  EXPECT_THROW(row.slice(0, 17), ValueError);
  EXPECT_THROW(TokenRow(Ids{3, -1}), ValueError);
  for (const std::int32_t id : {255, 256, 65535, 65536}) EXPECT_EQ(ids_of(TokenRow(Ids{id})), Ids{id});
}

TEST(TokenRow, FingerprintFollowsIdsAlone) {
  Ids ids(1000);
  std::iota(ids.begin(), ids.end(), 0);
  const TokenRow row(ids);
  const std::span<const std::int32_t> all(ids);
  TokenRow pieces(all.first(200));
  pieces.append(TokenRow(all.subspan(200)));
  EXPECT_EQ(row.fingerprint(), pieces.fingerprint());
  EXPECT_EQ(row.fingerprint().tokens, 1000);
  EXPECT_FALSE(row.fingerprint() == row.slice(0, 999).fingerprint());
  for (const std::size_t changed : {std::size_t{0}, std::size_t{500}, std::size_t{999}}) {
    Ids other = ids;
    other[changed] = 7777;
    EXPECT_FALSE(row.fingerprint() == TokenRow(other).fingerprint()) << changed;
  }
  // A long row is sampled: its ends are always among the samples, and a wholesale change is seen.
  Ids many(300'000, 5);
  const RowFingerprint plain = TokenRow(many).fingerprint();
  many.back() = 6;
  EXPECT_FALSE(TokenRow(many).fingerprint() == plain);
  many.back() = 5;
  std::fill(many.begin() + 100'000, many.begin() + 100'010, 6);
  EXPECT_FALSE(TokenRow(many).fingerprint() == plain);
  EXPECT_EQ(TokenRow().fingerprint().tokens, 0);
}

TEST(SplitRow, HoldsOutTheEnd) {
  Ids ids(101);
  std::iota(ids.begin(), ids.end(), 0);
  const auto [train, valid] = split_row(TokenRow(ids), 0.25);  // floor(25.25)
  EXPECT_EQ(ids_of(train), Ids(ids.begin(), ids.begin() + 76));
  EXPECT_EQ(ids_of(valid), Ids(ids.begin() + 76, ids.end()));
  EXPECT_EQ(split_row(TokenRow(ids), 0.001).second.size(), 0);
  for (const double fraction : {0.0, 1.0, -0.5, 2.0, std::nan("")})
    EXPECT_THROW(split_row(TokenRow(ids), fraction), ValueError);
}

TEST(TokenFile, LlmcFormats) {
  const TempFolder folder;
  const TokenFile narrow_file = open_token_file(
      folder.put("a.bin", llmc_header(20240520, 1, 3) + raw<std::uint16_t>({5, 50256, 65535})),
      TokenDType::automatic, 0);
  EXPECT_TRUE(narrow_file.has_header);
  EXPECT_EQ(narrow_file.width, 2);
  EXPECT_EQ(narrow_file.largest, 65535);
  EXPECT_EQ(ids_of(narrow_file.row), (Ids{5, 50256, 65535}));

  const TokenFile wide_file =
      open_token_file(folder.put("b.bin", llmc_header(20240801, 7, 2) + raw<std::uint32_t>({128000, 1})),
                      TokenDType::automatic, 128256);
  EXPECT_EQ(wide_file.width, 4);
  EXPECT_EQ(ids_of(wide_file.row), (Ids{128000, 1}));
}

TEST(TokenFile, HeaderlessWidthFollowsFlagAndVocabulary) {
  const TempFolder folder;
  const auto path = folder.put("a.bin", raw<std::uint16_t>({1, 0, 2, 0}));
  EXPECT_EQ(ids_of(open_token_file(path, TokenDType::automatic, 65536).row), (Ids{1, 0, 2, 0}));
  EXPECT_EQ(ids_of(open_token_file(path, TokenDType::automatic, 65537).row), (Ids{1, 2}));
  EXPECT_EQ(ids_of(open_token_file(path, TokenDType::uint16, 100'000).row), (Ids{1, 0, 2, 0}));
  EXPECT_EQ(ids_of(open_token_file(path, TokenDType::uint32, 3).row), (Ids{1, 2}));
  EXPECT_EQ(open_token_file(folder.put("one.bin", raw<std::uint16_t>({9})), TokenDType::automatic, 0).largest,
            9);
}

TEST(TokenFile, Refusals) {
  const TempFolder folder;
  const std::string three = raw<std::uint16_t>({1, 2, 3});
  struct Case {
    const char* what;
    std::string content;
    TokenDType dtype;
    std::int64_t vocabulary;
    const char* expected;
  };
  const Case cases[] = {
      {"empty", "", TokenDType::automatic, 0, "empty"},
      {"header alone, cut", llmc_header(20240520, 1, 3).substr(0, 1000), TokenDType::automatic, 0,
       "truncated"},
      {"header's magic alone", llmc_header(20240520, 1, 3).substr(0, 4), TokenDType::automatic, 0,
       "truncated"},
      {"tokens missing", llmc_header(20240520, 1, 4) + three, TokenDType::automatic, 0, "truncated"},
      {"a byte missing", llmc_header(20240520, 1, 3) + three.substr(1), TokenDType::automatic, 0,
       "truncated"},
      {"tokens too many", llmc_header(20240520, 1, 2) + three, TokenDType::automatic, 0, "2 bytes behind"},
      {"no tokens", llmc_header(20240520, 1, 0), TokenDType::automatic, 0, "counts 0 tokens"},
      {"negative count", llmc_header(20240520, 1, -3) + three, TokenDType::automatic, 0, "counts -3"},
      {"version", llmc_header(20240520, 2, 3) + three, TokenDType::automatic, 0, "version 2"},
      {"version of the wide kind", llmc_header(20240801, 1, 3) + three + three, TokenDType::automatic, 0,
       "version 1"},
      {"flag against header", llmc_header(20240520, 1, 3) + three, TokenDType::uint32, 0, "uint16"},
      {"flag against wide header", llmc_header(20240801, 7, 3) + three + three, TokenDType::uint16, 0,
       "uint32"},
      {"odd size", "abc", TokenDType::automatic, 0, "truncated"},
      {"not whole words", three, TokenDType::uint32, 0, "truncated"},
      {"id at the vocabulary", three, TokenDType::automatic, 3, "token 2 is 3"},
      {"id behind a header", llmc_header(20240520, 1, 3) + three, TokenDType::automatic, 2, "token 1 is 2"},
      {"id beyond 31 bits", raw<std::uint32_t>({1, 0x80000000u}), TokenDType::uint32, 0,
       "token 1 is 2147483648"},
  };
  for (const Case& c : cases) {
    const auto path = folder.put("tokens.bin", c.content);
    const std::string message = message_of<IoError>([&] { open_token_file(path, c.dtype, c.vocabulary); });
    EXPECT_NE(message.find(c.expected), std::string::npos) << c.what << ": \"" << message << '"';
    EXPECT_NE(message.find("tokens.bin"), std::string::npos) << c.what;
  }
  EXPECT_THROW(open_token_file(folder / "missing.bin", TokenDType::automatic, 0), IoError);
  EXPECT_EQ(parse_token_dtype("auto"), TokenDType::automatic);
  EXPECT_EQ(parse_token_dtype("uint16"), TokenDType::uint16);
  EXPECT_EQ(parse_token_dtype("uint32"), TokenDType::uint32);
  EXPECT_NE(message_of<ValueError>([] { parse_token_dtype("int8"); }).find("--token-dtype int8"),
            std::string::npos);
}

TEST(Corpus, PathsInTheOrderGiven) {
  const TempFolder folder;
  const Paths paths{folder.put("z.txt", "zz\n"), folder.put("tokens.bin", raw<std::uint16_t>({7, 255})),
                    folder.put("a.txt", "\xc3\xa9")};
  EXPECT_EQ(ids_of(load_corpus(paths, bytes_options())), (Ids{'z', 'z', '\n', 7, 255, 0xc3, 0xa9}));
}

TEST(Corpus, FolderByRelativePathBytewise) {
  const TempFolder folder;
  folder.put("text/b/x", "4");
  folder.put("text/b.txt", "3");  // '.' sorts before '/'
  folder.put("text/B", "2");
  folder.put("text/.hidden", "1");
  folder.put("text/c/deep/er/a", "5");
  folder.put("text/d-empty", "");
  folder.put("text/\xc3\xa9", "6");
  std::filesystem::create_directory(folder / "text/e-no-files");
  EXPECT_EQ(ids_of(load_corpus(Paths{folder / "text"}, bytes_options())), bytes("123456"));
  EXPECT_EQ(ids_of(load_corpus(Paths{folder.path().string() + "/text/"}, bytes_options())), bytes("123456"));
}

TEST(Corpus, VocabularyIsChecked) {
  const TempFolder folder;
  const auto text = folder.put("text", "ab");
  CorpusOptions options = bytes_options();
  options.vocabulary = 99;
  EXPECT_EQ(load_corpus(Paths{text}, options).size(), 2);
  options.vocabulary = 98;
  EXPECT_NE(message_of<IoError>([&] { load_corpus(Paths{text}, options); }).find("token 1 is 98"),
            std::string::npos);
  // A token file without a vocabulary of its own is held against the tokenizer's.
  const auto tokens = folder.put("t.bin", raw<std::uint16_t>({1, 256}));
  EXPECT_THROW(load_corpus(Paths{tokens}, bytes_options()), IoError);
  EXPECT_EQ(load_corpus(Paths{tokens}, CorpusOptions{}).size(), 2);
}

TEST(Corpus, Refusals) {
  const TempFolder folder;
  const auto refused = [&](const Paths& paths) {
    return message_of<IoError>([&] { load_corpus(paths, bytes_options()); });
  };
  const auto text = folder.put("text", "abc");
  EXPECT_NE(refused({text, folder / "nowhere"}).find("nowhere: no such"), std::string::npos);
  EXPECT_NE(refused({folder.put("nothing.txt", "")}).find("nothing.txt: is empty"), std::string::npos);
  std::filesystem::create_directories(folder / "hollow/inner");
  EXPECT_NE(refused({folder / "hollow"}).find("no files"), std::string::npos);
  folder.put("blank/a", "");
  EXPECT_NE(refused({folder / "blank"}).find("are empty"), std::string::npos);
  folder.put("mixed/a", "abc");
  folder.put("mixed/b.bin", raw<std::uint16_t>({1}));
  EXPECT_NE(refused({folder / "mixed"}).find("b.bin"), std::string::npos);
  folder.put("linked/a", "abc");
  std::filesystem::create_directory_symlink(folder / "mixed", folder / "linked/b");
  EXPECT_NE(refused({folder / "linked"}).find("linked/b"), std::string::npos);
  folder.put("dangling/a", "abc");
  std::filesystem::create_symlink("nowhere", folder / "dangling/b");
  EXPECT_NE(refused({folder / "dangling"}).find("dangling/b"), std::string::npos);
  folder.put("piped/a", "abc");
  ASSERT_EQ(::mkfifo((folder / "piped/b").c_str(), 0600), 0);
  EXPECT_NE(refused({folder / "piped"}).find("piped/b"), std::string::npos);

  EXPECT_THROW(load_corpus(Paths{}, bytes_options()), ValueError);
  EXPECT_NE(message_of<ValueError>([&] { load_corpus(Paths{text}, CorpusOptions{}); }).find("tokenizer"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock
