// What LevelDB expects of an environment, asked of the one over tiers: the cases of RocksDB's
// env_basic_test as they apply, and LevelDB's own about files that are opened again.
//
//   env_test DIR [URI]      without a URI of the host's own environment: it answers so, too
//
// Each case runs three times: with names that are the host's plain files, with names of tables,
// and with names of logs, which lie on the first tier. Exit status 0 when all passed; nothing is
// left then. `cargo xtask plugins test` compiles and runs it.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "leveldb/env.h"
#include "leveldb/options.h"
#include "thermocline_leveldb.h"

namespace {

using leveldb::Env;
using leveldb::Slice;
using leveldb::Status;

void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "env_test: %s\n", what.c_str());
  std::exit(1);
}

void Check(const Status& status, const std::string& what) {
  Require(status.ok(), what + ": " + status.ToString());
}

// An empty directory, and what files in it are called.
class Place {
 public:
  Place(Env* env, const std::string& directory, const std::string& ending)
      : env_(env), directory_(directory), ending_(ending) {
    Check(env_->CreateDir(directory_), "make " + directory_);
  }
  ~Place() {
    for (const std::string& name : Children()) Check(env_->RemoveFile(In(name)), "end: " + name);
    Check(env_->RemoveDir(directory_), "end: " + directory_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Env* env() const { return env_; }
  const std::string& directory() const { return directory_; }
  std::string Name(const std::string& name) const { return name + ending_; }
  std::string Path(const std::string& name) const { return In(Name(name)); }
  std::string In(const std::string& name) const { return directory_ + "/" + name; }

  // Without the two that the host's own environment names.
  std::vector<std::string> Children() const {
    std::vector<std::string> names;
    Check(env_->GetChildren(directory_, &names), "list " + directory_);
    const auto is_own = [](const std::string& name) { return name == "." || name == ".."; };
    names.erase(std::remove_if(names.begin(), names.end(), is_own), names.end());
    std::sort(names.begin(), names.end());
    return names;
  }

  uint64_t Size(const std::string& name) const {
    uint64_t size = 0;
    Check(env_->GetFileSize(Path(name), &size), "size of " + name);
    return size;
  }

  bool Has(const std::string& name) const { return env_->FileExists(Path(name)); }

  void Write(const std::string& name, const std::vector<std::string>& pieces,
             bool is_appended = false) const {
    leveldb::WritableFile* opened = nullptr;
    Check(is_appended ? env_->NewAppendableFile(Path(name), &opened)
                      : env_->NewWritableFile(Path(name), &opened),
          "create " + name);
    const std::unique_ptr<leveldb::WritableFile> file(opened);
    for (const std::string& piece : pieces) Check(file->Append(piece), "append to " + name);
    Check(file->Close(), "close " + name);
  }

  std::unique_ptr<leveldb::SequentialFile> InOrder(const std::string& name) const {
    leveldb::SequentialFile* opened = nullptr;
    Check(env_->NewSequentialFile(Path(name), &opened), "open " + name);
    return std::unique_ptr<leveldb::SequentialFile>(opened);
  }

  std::unique_ptr<leveldb::RandomAccessFile> Anywhere(const std::string& name) const {
    leveldb::RandomAccessFile* opened = nullptr;
    Check(env_->NewRandomAccessFile(Path(name), &opened), "open " + name);
    return std::unique_ptr<leveldb::RandomAccessFile>(opened);
  }

  std::string Read(const std::string& name) const {
    const auto file = InOrder(name);
    std::string all;
    std::vector<char> scratch(100000);
    for (Slice piece("some"); !piece.empty(); all.append(piece.data(), piece.size())) {
      Check(file->Read(scratch.size(), &piece, scratch.data()), "read " + name);
    }
    return all;
  }

  void Remove(const std::string& name) const {
    Check(env_->RemoveFile(Path(name)), "remove " + name);
  }

 private:
  Env* const env_;
  const std::string directory_, ending_;
};

void NamesComeAndGo(const Place& at) {
  uint64_t size = 0;
  Require(!at.Has("none"), "a file that was not made is not there");
  Require(!at.env()->GetFileSize(at.Path("none"), &size).ok(), "it has no size");
  Require(at.Children().empty(), "a new directory is empty");
  at.Write("one", {});
  Require(at.Has("one") && at.Size("one") == 0, "an empty file");
  Require(at.Children() == std::vector<std::string>{at.Name("one")}, "the directory has it");
  at.Write("two", {"warm"});
  Require(at.Size("two") == 4, "a file of four bytes");
  Require(!at.env()->RenameFile(at.Path("none"), at.Path("three")).ok(), "rename nothing");
  Check(at.env()->RenameFile(at.Path("two"), at.Path("three")), "rename");
  Require(!at.Has("two") && at.Read("three") == "warm", "the file has its new name alone");
  Check(at.env()->RenameFile(at.Path("one"), at.Path("three")), "rename over");
  Require(at.Size("three") == 0 && at.Children().size() == 1, "what was there is gone");
  leveldb::SequentialFile* in_order = nullptr;
  leveldb::RandomAccessFile* anywhere = nullptr;
  Require(at.env()->NewSequentialFile(at.Path("none"), &in_order).IsNotFound() && !in_order,
          "read nothing in order");
  Require(at.env()->NewRandomAccessFile(at.Path("none"), &anywhere).IsNotFound() && !anywhere,
          "read nothing anywhere");
  Require(!at.env()->RemoveFile(at.Path("none")).ok(), "remove nothing");
  at.Remove("three");
  Require(!at.Has("three") && at.Children().empty(), "the directory is empty again");
}

void BytesAreReadInOrderAndAnywhere(const Place& at) {
  at.Write("file", {"water ", "warm"});
  char scratch[100];
  Slice got;
  const auto in_order = at.InOrder("file");
  Check(in_order->Read(5, &got, scratch), "read");
  Require(got == "water", "the first word");
  Check(in_order->Skip(1), "skip");
  Check(in_order->Read(sizeof(scratch), &got, scratch), "read the rest");
  Require(got == "warm", "the second word");
  for (int beyond = 0; beyond < 2; beyond++) {
    Check(in_order->Read(sizeof(scratch), &got, scratch), "read at the end");
    Require(got.empty(), "there is no more");
    Check(in_order->Skip(100), "skip at the end");
  }
  const auto anywhere = at.Anywhere("file");
  const struct {
    uint64_t offset;
    size_t len;
    const char* expected;
  } reads[] = {{6, 4, "warm"}, {0, 5, "water"}, {9, 1, "m"}, {0, 10, "water warm"}};
  for (const auto& read : reads) {
    Check(anywhere->Read(read.offset, read.len, &got, scratch), "read anywhere");
    Require(got == read.expected, "bytes from " + std::to_string(read.offset));
  }
  // As the host's mapped file has it.
  Require(!anywhere->Read(1000, 5, &got, scratch).ok(), "read beyond the end");
}

void SyncedAndEmpty(const Place& at) {
  leveldb::WritableFile* opened = nullptr;
  Check(at.env()->NewWritableFile(at.Path("file"), &opened), "create");
  const std::unique_ptr<leveldb::WritableFile> file(opened);
  Check(file->Sync(), "sync");
  Check(file->Flush(), "flush");
  Check(file->Append("x"), "append");
  Check(file->Sync(), "sync again");
  Require(at.Size("file") == 1, "what was synced is in the file");
  Check(file->Close(), "close");
  Require(at.Read("file") == "x", "one byte");
}

void LargeWrites(const Place& at) {
  std::string large;
  for (size_t number = 0; large.size() < 300 * 1024; number++) {
    large += std::to_string(number * 2654435761u) + ' ';
  }
  const std::string half = large.substr(0, large.size() / 2);
  at.Write("file", {"head", large, half});
  Require(at.Read("file") == "head" + large + half, "large writes");
  const auto anywhere = at.Anywhere("file");
  std::vector<char> scratch(large.size());
  Slice got;
  Check(anywhere->Read(4, large.size(), &got, scratch.data()), "a large read");
  Require(got == large, "its bytes");
}

void DirectoriesAndWhatTheyHave(const Place& at) {
  const std::string inner = at.In("inner");
  Check(at.env()->CreateDir(inner), "make a directory");
  Require(at.env()->FileExists(inner), "it is there");
  Require(!at.env()->CreateDir(inner).ok(), "it cannot be made twice");
  at.Write("file", {"four"});
  const std::vector<std::string> expected = {at.Name("file"), "inner"};
  Require(at.Children() == expected, "a file, a directory, and none of ours");
  std::vector<std::string> names;
  Require(!at.env()->GetChildren(at.Path("file"), &names).ok(), "a file is no directory");
  Require(!at.env()->GetChildren(at.In("none"), &names).ok(), "list nothing");
  Check(at.env()->RemoveDir(inner), "remove the directory");
  Require(!at.env()->FileExists(inner), "it is gone");
}

void MadeAgainAndAppendedTo(const Place& at) {
  at.Write("file", {"hello"});
  at.Write("file", {"42"});
  Require(at.Read("file") == "42", "made again, it begins empty");
  at.Write("file", {"7", "x"}, true);
  Require(at.Read("file") == "427x" && at.Size("file") == 4, "appended to");
  at.Write("other", {"abc"}, true);
  Require(at.Read("other") == "abc", "appending makes a file that is not there");
  std::string text(200000, 'a');
  at.Write("other", {text}, true);
  Require(at.Read("other") == "abc" + text, "appended to at length");
}

void OneLockAtATime(const Place& at) {
  leveldb::FileLock* lock = nullptr;
  Check(at.env()->LockFile(at.In("LOCK"), &lock), "lock");
  leveldb::FileLock* second = nullptr;
  Require(!at.env()->LockFile(at.In("LOCK"), &second).ok(), "it is locked");
  Check(at.env()->UnlockFile(lock), "unlock");
  Check(at.env()->LockFile(at.In("LOCK"), &lock), "lock again");
  Check(at.env()->UnlockFile(lock), "unlock again");
}

// What a host wrote to the first tier is a link there, to a file that is on it.
void LogsLieOnTheFirstTier(const Place& at) {
  at.Write("file", {"x"});
  struct stat found;
  Require(lstat(at.Path("file").c_str(), &found) == 0, "lstat");
  const bool is_log = at.Name("") == ".log";
  Require(!is_log || S_ISLNK(found.st_mode), "a log is a link");
  Require(!at.Name("").empty() || S_ISREG(found.st_mode), "another file is none");
}

}  // namespace

int main(int count, char** arguments) {
  Require(count == 2 || count == 3, "say env_test DIR [URI]");
  const bool is_tiered = count == 3;
  leveldb::Options options;
  if (is_tiered) Check(thermocline_leveldb_attach(&options, arguments[2]), "attach");
  void (*const cases[])(const Place&) = {
      NamesComeAndGo, BytesAreReadInOrderAndAnywhere, SyncedAndEmpty,
      LargeWrites,    DirectoriesAndWhatTheyHave,     MadeAgainAndAppendedTo,
      OneLockAtATime,
  };
  int passed = 0;
  for (const char* const ending : {"", ".ldb", ".log"}) {
    for (const auto& tried : cases) {
      tried(Place(options.env, arguments[1], ending));
      passed++;
    }
    if (is_tiered) LogsLieOnTheFirstTier(Place(options.env, arguments[1], ending));
  }
  std::printf("env_test: %d cases with names of plain files, tables and logs\n", passed);
  return 0;
}
