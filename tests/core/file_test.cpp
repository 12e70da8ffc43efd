// Mapped files and the atomic writer: an older file stands until the new one is complete, and nothing is left
// behind.
#include "core/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

using testing::message_of;
using testing::TempFolder;
using Names = std::vector<std::string>;

// Files of this process can have at most so many bytes while it lives: a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST(MappedFile, WholeFile) {
  const TempFolder folder;
  std::string content(100'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 % 251);
  MappedFile file(folder.put("data", content));
  EXPECT_EQ(file.text(), content);
  EXPECT_EQ(file.bytes().size(), content.size());

  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.text(), content);
  EXPECT_EQ(file.bytes().size(), 0u);
  moved = MappedFile(folder.put("other", "xy"));
  EXPECT_EQ(moved.text(), "xy");
  EXPECT_EQ(MappedFile(folder.put("empty", "")).bytes().size(), 0u);
  EXPECT_EQ(read_file(folder / "data"), content);
  EXPECT_EQ(read_file(folder / "empty"), "");
}

TEST(MappedFile, Refusals) {
  const TempFolder folder;
  const std::string missing = message_of<IoError>([&] { MappedFile file(folder / "missing"); });
  EXPECT_NE(missing.find("missing"), std::string::npos);
  EXPECT_NE(missing.find("No such file"), std::string::npos) << missing;
  EXPECT_NE(message_of<IoError>([&] { MappedFile file(folder.path()); }).find("folder"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(message_of<IoError>([&] { MappedFile file(folder / "pipe"); }).find("regular"),
            std::string::npos);
  EXPECT_THROW(read_file(folder / "missing"), IoError);
  EXPECT_THROW(read_file(folder.path()), IoError);
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  const TempFolder folder;
  const std::string large(200'001, 'x');  // more than the buffer
  AtomicFile file(folder / "new");
  file.write("abc");
  file.write(large);
  EXPECT_EQ(file.bytes_written(), 200'004);
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  file.commit();
  EXPECT_EQ(read_file(folder / "new"), "abc" + large);
  EXPECT_EQ(folder.names(), Names{"new"});
  EXPECT_THROW(file.write("more"), IoError);
  EXPECT_THROW(file.commit(), IoError);
  EXPECT_EQ(read_file(folder / "new"), "abc" + large);
}

TEST(AtomicFile, AbandonedLeavesTheOldFile) {
  const TempFolder folder;
  folder.put("file", "old");
  {
    AtomicFile file(folder / "file");
    file.write(std::string(200'000, 'n'));
    EXPECT_EQ(read_file(folder / "file"), "old");
    EXPECT_EQ(folder.names().size(), 2u);  // the temporary one stands beside it
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(folder.names(), Names{"file"});
}

TEST(AtomicFile, FailedWriteLeavesTheOldFile) {
  const TempFolder folder;
  folder.put("file", "old");
  {
    AtomicFile file(folder / "file");
    const FileSizeLimit limit(100'000);
    const std::string message = message_of<IoError>([&] { file.write(std::string(300'000, 'n')); });
    EXPECT_NE(message.find("file"), std::string::npos);
    EXPECT_NE(message.find("too large"), std::string::npos) << message;
    EXPECT_EQ(folder.names(), Names{"file"});  // already removed
    EXPECT_THROW(file.commit(), IoError);
  }
  {
    AtomicFile file(folder / "file");  // what is in the buffer fails when it is flushed
    const FileSizeLimit limit(10);
    file.write("more than ten bytes");
    EXPECT_THROW(file.commit(), IoError);
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(folder.names(), Names{"file"});
}

TEST(AtomicFile, FailedRenameLeavesNothing) {
  const TempFolder folder;
  AtomicFile file(folder / "name");
  file.write("abc");
  std::filesystem::create_directory(folder / "name");  // meanwhile it became a folder
  EXPECT_THROW(file.commit(), IoError);
  EXPECT_EQ(folder.names(), Names{"name"});
  EXPECT_TRUE(std::filesystem::is_directory(folder / "name"));
}

TEST(AtomicFile, Refusals) {
  const TempFolder folder;
  EXPECT_NE(message_of<IoError>([&] { AtomicFile file(folder.path()); }).find("folder"), std::string::npos);
  EXPECT_NE(message_of<IoError>([&] { AtomicFile file(folder / "no/such/file"); }).find("No such"),
            std::string::npos);
  EXPECT_THROW(AtomicFile(""), IoError);
  EXPECT_TRUE(folder.names().empty());
}

TEST(AtomicFile, KeepsPermissionsAndFollowsLinks) {
  const TempFolder folder;
  folder.put("target", "old");
  std::filesystem::permissions(folder / "target",
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink("target", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");
  EXPECT_EQ(std::filesystem::status(folder / "target").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(folder.names().size(), 2u);
}

// A pipe of the test's own stands for what must not be replaced by a file; a system device must never be the
// guinea pig, for a writer that gets this wrong would destroy it.
TEST(AtomicFile, PipesAreWrittenInPlace) {
  const TempFolder folder;
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file(pipe, "abc");
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 3);
  EXPECT_EQ(std::string(got), "abc");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  const auto handler = ::signal(SIGPIPE, SIG_IGN);
  {
    AtomicFile file(pipe);
    ::close(reader);
    file.write("abc");
    const std::string message = message_of<IoError>([&] { file.commit(); });
    EXPECT_NE(message.find("Broken pipe"), std::string::npos) << message;
  }
  ::signal(SIGPIPE, handler);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(folder.names(), Names{"pipe"});
}

}  // namespace
}  // namespace penstock
