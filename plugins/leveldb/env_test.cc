// What LevelDB expects of an environment, asked of the one over tiers: the cases of both hosts
// (`tiers/env_cases.h`), and LevelDB's own about files that are opened again.
//
//   env_test DIR [URI]      without a URI of the host's own environment: it answers so, too
//
// Exit status 0 when all passed; nothing is left then. `cargo xtask plugins test` compiles and
// runs it.
#include "leveldb/env.h"

#include "../tiers/env_cases.h"
#include "leveldb/options.h"
#include "thermocline_leveldb.h"

namespace {

using leveldb::Slice;
using leveldb::Status;
using thermocline::Check;
using thermocline::Require;

// Gives what a call opened to `file`.
template <class File>
Status Opened(const Status& status, File* opened, std::unique_ptr<File>* file) {
  file->reset(opened);
  return status;
}

Status Written(const Status& status, leveldb::WritableFile* opened,
               const std::vector<std::string>& pieces) {
  const std::unique_ptr<leveldb::WritableFile> file(opened);
  if (!status.ok()) return status;
  for (const std::string& piece : pieces) Check(file->Append(piece), "append");
  return file->Close();
}

struct LevelDb {
  using Env = leveldb::Env;
  using Slice = leveldb::Slice;
  using FileLock = leveldb::FileLock;
  using InOrder = leveldb::SequentialFile;
  using Anywhere = leveldb::RandomAccessFile;
  static constexpr bool kListsItself = true;

  static Status Make(Env* env, const std::string& path) { return env->CreateDir(path); }
  static Status Remove(Env* env, const std::string& path) { return env->RemoveFile(path); }
  static Status RemoveDirectory(Env* env, const std::string& path) { return env->RemoveDir(path); }
  static bool IsNone(const Status& status) { return status.IsNotFound(); }
  static bool Has(Env* env, const std::string& path) { return env->FileExists(path); }
  static Status Create(Env* env, const std::string& path, const std::vector<std::string>& pieces) {
    leveldb::WritableFile* opened = nullptr;
    const Status status = env->NewWritableFile(path, &opened);
    return Written(status, opened, pieces);
  }
  static Status Open(Env* env, const std::string& path, std::unique_ptr<InOrder>* file) {
    InOrder* opened = nullptr;
    const Status status = env->NewSequentialFile(path, &opened);
    return Opened(status, opened, file);
  }
  static Status Open(Env* env, const std::string& path, std::unique_ptr<Anywhere>* file) {
    Anywhere* opened = nullptr;
    const Status status = env->NewRandomAccessFile(path, &opened);
    return Opened(status, opened, file);
  }
};

using Place = thermocline::Place<LevelDb>;

void Append(const Place& at, const std::string& name, const std::vector<std::string>& pieces) {
  leveldb::WritableFile* opened = nullptr;
  const Status status = at.env()->NewAppendableFile(at.Path(name), &opened);
  Check(Written(status, opened, pieces), "append to " + name);
}

// As the host's mapped file has it.
void NothingIsReadBeyondTheEnd(const Place& at) {
  at.Write("file", {"water warm"});
  char scratch[10];
  Slice got;
  Require(!at.Anywhere("file")->Read(1000, 5, &got, scratch).ok(), "read beyond the end");
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
  Append(at, "file", {"7", "x"});
  Require(at.Read("file") == "427x" && at.Size("file") == 4, "appended to");
  Append(at, "other", {"abc"});
  Require(at.Read("other") == "abc", "appending makes a file that is not there");
  std::string text(200000, 'a');
  Append(at, "other", {text});
  Require(at.Read("other") == "abc" + text, "appended to at length");
}

}  // namespace

int main(int count, char** arguments) {
  Require(count == 2 || count == 3, "say env_test DIR [URI]");
  const bool is_tiered = count == 3;
  leveldb::Options options;
  if (is_tiered) Check(thermocline_leveldb_attach(&options, arguments[2]), "attach");
  return thermocline::RunCases<LevelDb>(
      options.env, arguments[1], ".ldb", is_tiered,
      {NothingIsReadBeyondTheEnd, SyncedAndEmpty, DirectoriesAndWhatTheyHave,
       MadeAgainAndAppendedTo});
}
