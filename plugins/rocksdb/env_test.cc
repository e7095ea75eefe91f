// What RocksDB expects of an environment, asked of the one over tiers: the cases of its own
// env_basic_test, which Debian does not ship, and the calls that change names.
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

#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "thermocline_rocksdb.h"

namespace {

using rocksdb::Env;
using rocksdb::EnvOptions;
using rocksdb::Slice;
using rocksdb::Status;

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
    Check(env_->CreateDirIfMissing(directory_), "make " + directory_);
  }
  ~Place() {
    for (const std::string& name : Children()) Check(env_->DeleteFile(In(name)), "end: " + name);
    Check(env_->DeleteDir(directory_), "end: " + directory_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Env* env() const { return env_; }
  const std::string& directory() const { return directory_; }
  std::string Name(const std::string& name) const { return name + ending_; }
  std::string Path(const std::string& name) const { return In(Name(name)); }
  std::string In(const std::string& name) const { return directory_ + "/" + name; }

  std::vector<std::string> Children() const {
    std::vector<std::string> names;
    Check(env_->GetChildren(directory_, &names), "list " + directory_);
    std::sort(names.begin(), names.end());
    return names;
  }

  uint64_t Size(const std::string& name) const {
    uint64_t size = 0;
    Check(env_->GetFileSize(Path(name), &size), "size of " + name);
    return size;
  }

  bool Has(const std::string& name) const {
    const Status status = env_->FileExists(Path(name));
    Require(status.ok() || status.IsNotFound(), "is there: " + status.ToString());
    return status.ok();
  }

  void Write(const std::string& name, const std::vector<std::string>& pieces) const {
    std::unique_ptr<rocksdb::WritableFile> file;
    Check(env_->NewWritableFile(Path(name), &file, EnvOptions()), "create " + name);
    for (const std::string& piece : pieces) Check(file->Append(piece), "append to " + name);
    Check(file->Close(), "close " + name);
  }

  std::string Read(const std::string& name) const {
    std::unique_ptr<rocksdb::SequentialFile> file;
    Check(env_->NewSequentialFile(Path(name), &file, EnvOptions()), "open " + name);
    std::string all;
    std::vector<char> scratch(100000);
    for (Slice piece("some"); !piece.empty(); all.append(piece.data(), piece.size())) {
      Check(file->Read(scratch.size(), &piece, scratch.data()), "read " + name);
    }
    return all;
  }

  void Delete(const std::string& name) const {
    Check(env_->DeleteFile(Path(name)), "delete " + name);
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
  std::unique_ptr<rocksdb::SequentialFile> in_order;
  std::unique_ptr<rocksdb::RandomAccessFile> anywhere;
  Require(!at.env()->NewSequentialFile(at.Path("none"), &in_order, EnvOptions()).ok() && !in_order,
          "read nothing in order");
  Require(!at.env()->NewRandomAccessFile(at.Path("none"), &anywhere, EnvOptions()).ok() &&
              !anywhere,
          "read nothing anywhere");
  Require(!at.env()->DeleteFile(at.Path("none")).ok(), "delete nothing");
  at.Delete("three");
  Require(!at.Has("three") && at.Children().empty(), "the directory is empty again");
}

void BytesAreReadInOrderAndAnywhere(const Place& at) {
  at.Write("file", {"water ", "warm"});
  char scratch[100];
  Slice got;
  std::unique_ptr<rocksdb::SequentialFile> in_order;
  Check(at.env()->NewSequentialFile(at.Path("file"), &in_order, EnvOptions()), "open");
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
  std::unique_ptr<rocksdb::RandomAccessFile> anywhere;
  Check(at.env()->NewRandomAccessFile(at.Path("file"), &anywhere, EnvOptions()), "open");
  const struct {
    uint64_t offset;
    size_t len;
    const char* expected;
  } reads[] = {{6, 4, "warm"}, {0, 5, "water"}, {9, 100, "m"}, {10, 5, ""}, {1000, 5, ""}};
  for (const auto& read : reads) {
    Check(anywhere->Read(read.offset, read.len, &got, scratch), "read anywhere");
    Require(got == read.expected, "bytes from " + std::to_string(read.offset));
  }
}

void SyncedAndEmpty(const Place& at) {
  std::unique_ptr<rocksdb::WritableFile> file;
  Check(at.env()->NewWritableFile(at.Path("file"), &file, EnvOptions()), "create");
  Check(file->Sync(), "sync");
  Check(file->Fsync(), "sync with times");
  Check(file->Flush(), "flush");
  Check(file->Append("x"), "append");
  Require(file->GetFileSize() == 1, "the length of an open file");
  Check(file->RangeSync(0, 1), "sync a range");
  Check(file->Sync(), "sync again");
  Check(file->Close(), "close");
  std::unique_ptr<rocksdb::Directory> directory;
  Check(at.env()->NewDirectory(at.directory(), &directory), "open the directory");
  Check(directory->Fsync(), "sync the directory");
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
  std::unique_ptr<rocksdb::RandomAccessFile> anywhere;
  Check(at.env()->NewRandomAccessFile(at.Path("file"), &anywhere, EnvOptions()), "open");
  std::vector<char> scratch(large.size());
  Slice got;
  Check(anywhere->Read(4, large.size(), &got, scratch.data()), "a large read");
  Require(got == large, "its bytes");
}

void TimesAreThere(const Place& at) {
  at.Write("file", {"x"});
  uint64_t of_file = 0, of_directory = 0;
  Check(at.env()->GetFileModificationTime(at.Path("file"), &of_file), "time of a file");
  Check(at.env()->GetFileModificationTime(at.directory(), &of_directory), "of a directory");
  struct stat now;
  Require(stat(at.Path("file").c_str(), &now) == 0, "stat");
  Require(of_file == static_cast<uint64_t>(now.st_mtime), "the file's own time");
  uint64_t of_none = 0;
  Require(!at.env()->GetFileModificationTime(at.Path("none"), &of_none).ok(), "time of nothing");
}

void DirectoriesAndWhatTheyHave(const Place& at) {
  const std::string inner = at.In("inner");
  Check(at.env()->CreateDir(inner), "make a directory");
  Check(at.env()->FileExists(inner), "it is there");
  Require(!at.env()->CreateDir(inner).ok(), "it cannot be made twice");
  Check(at.env()->CreateDirIfMissing(inner), "unless that is meant");
  at.Write("file", {"four"});
  std::vector<std::string> expected = {at.Name("file"), "inner"};
  Require(at.Children() == expected, "a file, a directory, and none of ours, '.' or '..'");
  std::vector<Env::FileAttributes> files;
  Check(at.env()->GetChildrenFileAttributes(at.directory(), &files), "list with lengths");
  const auto is_file = [&](const Env::FileAttributes& file) {
    return file.name == at.Name("file") && file.size_bytes == 4;
  };
  Require(files.size() == 2 && std::count_if(files.begin(), files.end(), is_file) == 1,
          "names with lengths");
  std::vector<std::string> names;
  Require(!at.env()->GetChildren(at.Path("file"), &names).ok(), "a file is no directory");
  Require(at.env()->GetChildren(at.In("none"), &names).IsNotFound(), "list nothing");
  Require(!at.env()->GetChildrenFileAttributes(at.In("none"), &files).ok(), "with lengths");
  Check(at.env()->DeleteDir(inner), "delete the directory");
  Require(at.env()->FileExists(inner).IsNotFound(), "it is gone");
}

void CutOpenedAgainAndUsedAgain(const Place& at) {
  at.Write("file", {"0123456789"});
  // The host itself cuts no plain file.
  const Status cut = at.env()->Truncate(at.Path("file"), 4);
  Require(cut.ok() || cut.IsNotSupported(), "cut: " + cut.ToString());
  const std::string left = cut.ok() ? "0123" : "0123456789";
  Require(at.Read("file") == left && at.Size("file") == left.size(), "the first bytes");
  std::unique_ptr<rocksdb::WritableFile> file;
  Check(at.env()->ReopenWritableFile(at.Path("file"), &file, EnvOptions()), "open again");
  Check(file->Append("abc"), "append");
  Check(file->Close(), "close");
  Require(at.Read("file") == left + "abc", "appended to");
  at.Write("file", {"new"});
  Require(at.Read("file") == "new", "made again, it begins empty");
  Check(at.env()->ReuseWritableFile(at.Path("other"), at.Path("file"), &file, EnvOptions()),
        "use again");
  Check(file->Append("other bytes"), "append");
  Check(file->Close(), "close");
  Require(!at.Has("file") && at.Read("other") == "other bytes", "used again by another name");
  std::unique_ptr<rocksdb::RandomRWFile> anywhere;
  Check(at.env()->NewRandomRWFile(at.Path("other"), &anywhere, EnvOptions()), "open for both");
  Check(anywhere->Write(0, "OTHER"), "write anywhere");
  char scratch[20];
  Slice got;
  Check(anywhere->Read(3, 8, &got, scratch), "read what was written");
  Require(got == "ER bytes", "both together");
  Check(anywhere->Sync(), "sync");
  Check(anywhere->Close(), "close");
  Require(at.Read("other") == "OTHER bytes", "written in place");
}

void TwoNamesOfAFile(const Place& at) {
  at.Write("one", {"warm"});
  at.Write("third", {"cold"});
  bool is_same = true;
  Check(at.env()->AreFilesSame(at.Path("one"), at.Path("third"), &is_same), "compare");
  Require(!is_same, "two files");
  Check(at.env()->LinkFile(at.Path("one"), at.Path("two")), "a second name");
  Check(at.env()->AreFilesSame(at.Path("one"), at.Path("two"), &is_same), "compare");
  Require(is_same && at.Children().size() == 3, "one file by two names");
  Require(!at.env()->LinkFile(at.Path("one"), at.Path("third")).ok(), "a name that is taken");
  Require(!at.env()->LinkFile(at.Path("none"), at.Path("fourth")).ok(), "a name of nothing");
  Require(at.Read("third") == "cold" && !at.Has("fourth"), "as it was");
  at.Delete("one");
  Require(at.Read("two") == "warm" && !at.Has("one"), "the other name stays");
  Check(at.env()->RenameFile(at.Path("two"), at.Path("third")), "rename over");
  Require(at.Read("third") == "warm" && at.Children().size() == 1, "in place of another");
}

void OneLockAtATime(const Place& at) {
  rocksdb::FileLock* lock = nullptr;
  Check(at.env()->LockFile(at.In("LOCK"), &lock), "lock");
  rocksdb::FileLock* second = nullptr;
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
  rocksdb::Options options;
  if (is_tiered) Check(thermocline_rocksdb_attach(&options, arguments[2]), "attach");
  void (*const cases[])(const Place&) = {
      NamesComeAndGo,  BytesAreReadInOrderAndAnywhere, SyncedAndEmpty,
      LargeWrites,     TimesAreThere,                  DirectoriesAndWhatTheyHave,
      TwoNamesOfAFile, CutOpenedAgainAndUsedAgain,     OneLockAtATime,
  };
  int passed = 0;
  for (const char* const ending : {"", ".sst", ".log"}) {
    for (const auto& tried : cases) {
      tried(Place(options.env, arguments[1], ending));
      passed++;
    }
    if (is_tiered) LogsLieOnTheFirstTier(Place(options.env, arguments[1], ending));
  }
  std::printf("env_test: %d cases with names of plain files, tables and logs\n", passed);
  return 0;
}
