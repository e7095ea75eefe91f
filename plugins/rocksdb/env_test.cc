// What RocksDB expects of an environment, asked of the one over tiers: the cases of its own
// env_basic_test, which Debian does not ship (those of both hosts: `tiers/env_cases.h`), and the
// calls that change names.
//
//   env_test DIR [URI]      without a URI of the host's own environment: it answers so, too
//
// Exit status 0 when all passed; nothing is left then. `cargo xtask plugins test` compiles and
// runs it.
#include "rocksdb/env.h"

#include "../tiers/env_cases.h"
#include "rocksdb/db.h"
#include "thermocline_rocksdb.h"

namespace {

using rocksdb::EnvOptions;
using rocksdb::Slice;
using rocksdb::Status;
using thermocline::Check;
using thermocline::Require;

struct RocksDb {
  using Env = rocksdb::Env;
  using Slice = rocksdb::Slice;
  using FileLock = rocksdb::FileLock;
  using InOrder = rocksdb::SequentialFile;
  using Anywhere = rocksdb::RandomAccessFile;
  static constexpr bool kListsItself = false;

  static Status Make(Env* env, const std::string& path) { return env->CreateDirIfMissing(path); }
  static Status Remove(Env* env, const std::string& path) { return env->DeleteFile(path); }
  static Status RemoveDirectory(Env* env, const std::string& path) { return env->DeleteDir(path); }
  static bool IsNone(const Status& status) { return !status.ok(); }
  static bool Has(Env* env, const std::string& path) {
    const Status status = env->FileExists(path);
    Require(status.ok() || status.IsNotFound(), "is there: " + status.ToString());
    return status.ok();
  }
  static Status Create(Env* env, const std::string& path, const std::vector<std::string>& pieces) {
    std::unique_ptr<rocksdb::WritableFile> file;
    const Status status = env->NewWritableFile(path, &file, EnvOptions());
    if (!status.ok()) return status;
    for (const std::string& piece : pieces) Check(file->Append(piece), "append");
    return file->Close();
  }
  static Status Open(Env* env, const std::string& path, std::unique_ptr<InOrder>* file) {
    return env->NewSequentialFile(path, file, EnvOptions());
  }
  static Status Open(Env* env, const std::string& path, std::unique_ptr<Anywhere>* file) {
    return env->NewRandomAccessFile(path, file, EnvOptions());
  }
};

using Place = thermocline::Place<RocksDb>;

void LessIsReadBeyondTheEnd(const Place& at) {
  at.Write("file", {"water warm"});
  const auto anywhere = at.Anywhere("file");
  const struct {
    uint64_t offset;
    size_t len;
    const char* expected;
  } reads[] = {{9, 100, "m"}, {10, 5, ""}, {1000, 5, ""}};
  char scratch[100];
  Slice got;
  for (const auto& read : reads) {
    Check(anywhere->Read(read.offset, read.len, &got, scratch), "read beyond the end");
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
  std::vector<rocksdb::Env::FileAttributes> files;
  Check(at.env()->GetChildrenFileAttributes(at.directory(), &files), "list with lengths");
  const auto is_file = [&](const rocksdb::Env::FileAttributes& file) {
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
  at.Remove("one");
  Require(at.Read("two") == "warm" && !at.Has("one"), "the other name stays");
  Check(at.env()->RenameFile(at.Path("two"), at.Path("third")), "rename over");
  Require(at.Read("third") == "warm" && at.Children().size() == 1, "in place of another");
}

}  // namespace

int main(int count, char** arguments) {
  Require(count == 2 || count == 3, "say env_test DIR [URI]");
  const bool is_tiered = count == 3;
  rocksdb::Options options;
  if (is_tiered) Check(thermocline_rocksdb_attach(&options, arguments[2]), "attach");
  return thermocline::RunCases<RocksDb>(
      options.env, arguments[1], ".sst", is_tiered,
      {LessIsReadBeyondTheEnd, SyncedAndEmpty, TimesAreThere, DirectoriesAndWhatTheyHave,
       TwoNamesOfAFile, CutOpenedAgainAndUsedAgain});
}
