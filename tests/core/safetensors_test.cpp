// Safetensors: what we write is checked byte by byte and read back; files built by hand, good and damaged,
// are read.
#include "core/safetensors.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;
using testing::TempFolder;

std::string length_prefix(std::uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift & 0xff));
  return bytes;
}

// A file with that header and so many bytes (0, 1, 2, ...) of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string data;
  for (std::size_t i = 0; i < data_bytes; ++i) data.push_back(static_cast<char>(i));
  return length_prefix(header.size()) + header + data;
}

template <class T>
SafetensorsEntry entry_of(std::string name, Shape shape, const std::vector<T>& values) {
  return {std::move(name), dtype_of<T>, shape, reinterpret_cast<const std::byte*>(values.data()),
          static_cast<std::int64_t>(values.size() * sizeof(T))};
}

TEST(Safetensors, RoundTrip) {
  const TempFolder folder;
  const std::vector<std::uint8_t> bytes{1, 2, 3};
  const std::vector<float> floats{1.5f, -2.0f, 3.25f, 0.0f, -0.0f, 1e-40f};
  const std::vector<double> doubles{0.1, 0.2};
  const std::vector<bf16> halves{bf16(1.0f), bf16(-3.0f)};
  const std::vector<std::int32_t> ints{-5};
  const std::vector<std::int64_t> longs{std::int64_t{1} << 40};
  const std::vector<float> none;
  const std::vector<SafetensorsEntry> entries{entry_of("b\xc3\xbcte \"quoted\"", {3}, bytes),
                                              entry_of("f", {2, 3}, floats),
                                              entry_of("d", {2, 1}, doubles),
                                              entry_of("h", {2}, halves),
                                              entry_of("scalar", {}, ints),
                                              entry_of("l", {1, 1, 1}, longs),
                                              entry_of("none", {0, 7}, none)};
  write_safetensors(folder / "file.safetensors", entries, {{"format", "pt"}, {"quote", "a \"b\"\n"}});
  EXPECT_EQ(folder.names().size(), 1u);

  const SafetensorsFile file(folder / "file.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"quote", "a \"b\"\n"}}));
  ASSERT_EQ(file.entries().size(), entries.size());
  for (const SafetensorsEntry& written : entries) {
    const SafetensorsEntry& read = file.at(written.name);
    EXPECT_EQ(read.name, written.name);
    EXPECT_EQ(read.dtype, written.dtype);
    EXPECT_EQ(read.shape, written.shape);
    ASSERT_EQ(read.bytes, written.bytes);
    EXPECT_TRUE(std::equal(read.data, read.data + read.bytes, written.data)) << written.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.data) % static_cast<std::uintptr_t>(size_of(read.dtype)),
              0u);
  }
  EXPECT_EQ(file.find("g"), nullptr);
  const std::string message = message_of<IoError>([&] { file.at("wte.weight"); });
  EXPECT_NE(message.find("file.safetensors"), std::string::npos);
  EXPECT_NE(message.find("wte.weight"), std::string::npos);
}

// Another reader's view of what is written: length, padded JSON, ranges one behind the other.
TEST(Safetensors, WrittenLayout) {
  const TempFolder folder;
  const std::vector<float> a{1.0f, 2.0f};
  const std::vector<std::uint8_t> b{7};
  write_safetensors(folder / "f", std::vector{entry_of("b", {1}, b), entry_of("a", {2}, a)}, {});
  const std::string text = read_file(folder / "f");
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(nlohmann::json::parse(text.substr(8, length)),
            nlohmann::json::parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                                      "b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})"));
  ASSERT_EQ(text.size(), 8 + length + 9);
  EXPECT_EQ(text.substr(8 + length), std::string("\0\0\x80\x3f\0\0\0\x40\x07", 9));
}

TEST(Safetensors, ReadsAFileMadeByHand) {
  const TempFolder folder;
  const std::string header =
      R"({ "x":{"shape":[3],"data_offsets":[4,10],"dtype":"BF16"},"__metadata__":{"k":"v"},)"
      R"("mask":{"dtype":"BOOL","shape":[2,2],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}   )";
  const SafetensorsFile file(folder.put("f", file_of(header, 10)));
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "e");
  EXPECT_EQ(file.at("x").shape, (Shape{3}));
  EXPECT_EQ(static_cast<int>(file.at("x").data[0]), 4);
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.foreign().at("mask"), "BOOL");
  const std::string message = message_of<IoError>([&] { file.at("mask"); });
  EXPECT_NE(message.find("BOOL"), std::string::npos) << message;
  EXPECT_EQ(SafetensorsFile(folder.put("empty", file_of("{}", 0))).entries().size(), 0u);
}

struct Damage {
  const char* what;
  std::string content;
  const char* expected;  // in the message
};

TEST(Safetensors, DamagedFilesAreRefused) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto one = [](const std::string& fields) { return fmt::format(R"({{"a":{{{}}}}})", fields); };
  const auto tensor = [](const std::string& name, const std::string& dtype, const std::string& shape,
                         int begin, int end) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape,
                       begin, end);
  };
  const auto braced = [](const std::vector<std::string>& members) {
    return fmt::format("{{{}}}", fmt::join(members, ","));
  };
  std::string deep = "{\"a\":{\"shape\":";
  deep.append(100'000, '[');
  const std::vector<Damage> damages{
      {"empty file", "", "too few"},
      {"truncated length", "\x10\0\0", "too few"},
      {"truncated header", length_prefix(good.size()) + good.substr(0, 20), "truncated"},
      {"huge header", length_prefix(std::uint64_t{1} << 60) + good, "header of 1152921504606846976"},
      {"header above the limit", length_prefix(100'000'001) + good, "100000001"},
      {"length that wraps", length_prefix(~std::uint64_t{0}) + good, "header of"},
      {"empty header", file_of("", 0), "not a JSON object"},
      {"header is a list", file_of("[]", 0), "not a JSON object"},
      {"header does not start with a brace", file_of(" {}", 0), "not a JSON object"},
      {"JSON cut short", file_of(good.substr(0, 30), 8), "not valid JSON"},
      {"text behind the JSON", file_of(good + "x", 8), "not valid JSON"},
      {"invalid UTF-8", file_of("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8),
       "not valid JSON"},
      {"nested too deeply", file_of(deep, 0), "list where none"},
      {"object in an object", file_of(R"({"a":{"dtype":{"b":{}}}})", 0), "nested too deeply"},
      {"truncated data", file_of(good, 7), "truncated"},
      {"trailing bytes", file_of(good, 9), "1 bytes behind"},
      {"bytes without tensors", file_of("{}", 3), "3 bytes behind"},
      {"overlap", file_of(braced({tensor("a", "F32", "[2]", 0, 8), tensor("b", "F32", "[2]", 4, 12)}), 12),
       "inside the one"},
      {"the same range twice",
       file_of(braced({tensor("a", "F32", "[2]", 0, 8), tensor("b", "F32", "[2]", 0, 8)}), 8),
       "inside the one"},
      {"hole", file_of(braced({tensor("a", "F32", "[2]", 0, 8), tensor("b", "F32", "[1]", 12, 16)}), 16),
       "hole of 4"},
      {"hole at the start", file_of(braced({tensor("a", "F32", "[2]", 4, 12)}), 12), "hole of 4"},
      {"offsets backwards", file_of(braced({tensor("a", "F32", "[0]", 8, 4)}), 8), "backwards"},
      {"offset outside", file_of(braced({tensor("a", "F32", "[25]", 0, 100)}), 8), "truncated"},
      {"unknown dtype", file_of(braced({tensor("a", "F31", "[2]", 0, 8)}), 8), "unknown dtype 'F31'"},
      {"dtype that does not fit", file_of(braced({tensor("a", "F64", "[2]", 0, 8)}), 8),
       "needs 16 bytes, it has 8"},
      {"shape that does not fit", file_of(braced({tensor("a", "F32", "[3]", 0, 8)}), 8), "needs 12 bytes"},
      {"negative size", file_of(braced({tensor("a", "F32", "[-2]", 0, 8)}), 8), "-2 in shape"},
      {"two negative sizes", file_of(braced({tensor("a", "F32", "[-2,-1]", 0, 8)}), 8), "-2 in shape"},
      {"size beyond 64 bits", file_of(braced({tensor("a", "F32", "[99999999999999999999]", 0, 8)}), 8),
       "not an integer"},
      {"size beyond 63 bits", file_of(braced({tensor("a", "F32", "[18446744073709551615]", 0, 8)}), 8),
       "too large"},
      {"product overflows", file_of(braced({tensor("a", "F32", "[4294967296,4294967296]", 0, 8)}), 8),
       "overflows"},
      {"product wraps to the right size",
       file_of(braced({tensor("a", "F32", "[4611686018427387904,4,2]", 0, 0)}), 0), "overflows"},
      {"fraction in shape", file_of(braced({tensor("a", "F32", "[2.0]", 0, 8)}), 8), "not an integer"},
      {"text in shape", file_of(braced({tensor("a", "F32", "[\"2\"]", 0, 8)}), 8), "text where none"},
      {"too many dimensions", file_of(braced({tensor("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8)}), 8), "'a'"},
      {"three offsets", file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8),
       "two numbers"},
      {"no offsets", file_of(one(R"("dtype":"F32","shape":[2])"), 8), "two numbers"},
      {"no dtype", file_of(one(R"("shape":[2],"data_offsets":[0,8])"), 8), "no dtype"},
      {"no shape", file_of(one(R"("dtype":"F32","data_offsets":[0,8])"), 8), "no shape"},
      {"dtype is a number", file_of(one(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"), 8),
       "number where none"},
      {"dtype is a list", file_of(one(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"), 8),
       "dtype must not be a list"},
      {"shape twice", file_of(one(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])"), 8),
       "shape stands twice"},
      {"dtype twice", file_of(one(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), 8),
       "dtype stands twice"},
      {"unknown key", file_of(one(R"("dtype":"F32","strides":[1],"shape":[2],"data_offsets":[0,8])"), 8),
       "strides"},
      {"name twice", file_of(braced({tensor("a", "F32", "[2]", 0, 8), tensor("a", "F32", "[2]", 8, 16)}), 16),
       "'a' stands twice"},
      {"tensor is a number", file_of(R"({"a":3})", 0), "number where none"},
      {"tensor is null", file_of(R"({"a":null})", 0), "null where none"},
      {"tensor is true", file_of(R"({"a":true})", 0), "truth value"},
      {"metadata is a text", file_of(R"({"__metadata__":"x"})", 0), "text where none"},
      {"metadata holds a number", file_of(R"({"__metadata__":{"k":1}})", 0), "number where none"},
      {"metadata holds a list", file_of(R"({"__metadata__":{"k":[]}})", 0), "list where none"},
      {"metadata key twice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "'k' stands twice"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "stands twice"},
  };
  const TempFolder folder;
  ASSERT_EQ(SafetensorsFile(folder.put("good", file_of(good, 8))).entries().size(), 1u);
  for (const Damage& damage : damages) {
    const auto path = folder.put("damaged.safetensors", damage.content);
    const std::string message = message_of<IoError>([&] { SafetensorsFile file(path); });
    EXPECT_NE(message.find(damage.expected), std::string::npos) << damage.what << ": \"" << message << '"';
    EXPECT_NE(message.find("damaged.safetensors"), std::string::npos) << damage.what << ": " << message;
  }
  EXPECT_THROW(SafetensorsFile(folder / "missing"), IoError);
}

// Every cut of a good file, and every byte of its header changed: refused or read, never a crash or a range
// outside.
TEST(Safetensors, CutsAndFlipsStayInside) {
  const TempFolder folder;
  const std::string good = file_of(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
      11);
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_THROW(SafetensorsFile(folder.put("f", good.substr(0, cut))), IoError) << cut;
  int refused = 0;
  for (std::size_t at = 0; at < good.size() - 11; ++at) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    try {
      const SafetensorsFile file(folder.put("f", flipped));
      std::int64_t total = 0;
      for (const SafetensorsEntry& entry : file.entries()) total += entry.bytes;
      EXPECT_LE(total, 11);
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Safetensors, WriterRefusesAndLeavesTheOldFile) {
  const TempFolder folder;
  folder.put("f", "old");
  const std::vector<float> values{1, 2};
  const auto a = entry_of("a", {2}, values);
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{a, a}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{entry_of("a", {3}, values)}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{entry_of("__metadata__", {2}, values)}),
               ValueError);
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{entry_of("\xff", {2}, values)}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "f", std::vector{a}, {{"k", "\xff"}}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "no/f", std::vector{a}), IoError);
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

TEST(Safetensors, StreamedInPieces) {
  const TempFolder folder;
  const std::vector<float> a{1, 2, 3}, b{4};
  const std::vector<SafetensorsEntry> declared{entry_of("b", {1}, b), entry_of("a", {3}, a)};
  {
    SafetensorsWriter writer(folder / "f", declared, {});
    writer.append(b.data(), 4);
    writer.append(a.data(), 4);
    EXPECT_THROW(writer.commit(), ValueError);
    writer.append(a.data() + 1, 8);
    EXPECT_THROW(writer.append(a.data(), 1), ValueError);
    EXPECT_FALSE(std::filesystem::exists(folder / "f"));
    writer.commit();
  }
  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.entries()[0].name, "b");
  EXPECT_EQ(std::memcmp(file.at("a").data, a.data(), 12), 0);
  EXPECT_EQ(std::memcmp(file.at("b").data, b.data(), 4), 0);
}

}  // namespace
}  // namespace penstock
