// What RocksDB and LevelDB both expect of an environment, case by case. `env_test.cc` of each host
// has its own cases besides, and says by a `Host` how that host spells a call:
//
//   Env, Status, Slice, FileLock, InOrder, Anywhere      types of the host
//   Make(env, path)                                      a directory, which may be there
//   Remove(env, path), RemoveDirectory(env, path)
//   Has(env, path)                                       whether a name is there
//   Create(env, path, pieces)                            a file of these pieces, closed
//   Open(env, path, &in_order), Open(env, path, &anywhere)
//   IsNone(status)                                       it tells that there is no such file
//   kListsItself                                         "." and ".." are children, too
//
// Each case runs three times: with names that are the host's plain files, with names of tables,
// and with names of logs, which lie on the first tier.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace thermocline {

inline void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "env_test: %s\n", what.c_str());
  std::exit(1);
}

template <class Status>
void Check(const Status& status, const std::string& what) {
  Require(status.ok(), what + ": " + status.ToString());
}

// An empty directory, and what files in it are called.
template <class Host>
class Place {
 public:
  using Env = typename Host::Env;
  using Slice = typename Host::Slice;

  Place(Env* env, const std::string& directory, const std::string& ending)
      : env_(env), directory_(directory), ending_(ending) {
    Check(Host::Make(env_, directory_), "make " + directory_);
  }
  ~Place() {
    for (const std::string& name : Children()) Check(Host::Remove(env_, In(name)), "end: " + name);
    Check(Host::RemoveDirectory(env_, directory_), "end: " + directory_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Env* env() const { return env_; }
  const std::string& directory() const { return directory_; }
  std::string Name(const std::string& name) const { return name + ending_; }
  std::string Path(const std::string& name) const { return In(Name(name)); }
  std::string In(const std::string& name) const { return directory_ + "/" + name; }

  // Without the two that LevelDB's own environment names.
  std::vector<std::string> Children() const {
    std::vector<std::string> names;
    Check(env_->GetChildren(directory_, &names), "list " + directory_);
    const auto is_own = [](const std::string& name) { return name == "." || name == ".."; };
    if (Host::kListsItself) {
      names.erase(std::remove_if(names.begin(), names.end(), is_own), names.end());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  uint64_t Size(const std::string& name) const {
    uint64_t size = 0;
    Check(env_->GetFileSize(Path(name), &size), "size of " + name);
    return size;
  }

  bool Has(const std::string& name) const { return Host::Has(env_, Path(name)); }

  void Write(const std::string& name, const std::vector<std::string>& pieces) const {
    Check(Host::Create(env_, Path(name), pieces), "write " + name);
  }

  std::unique_ptr<typename Host::InOrder> InOrder(const std::string& name) const {
    std::unique_ptr<typename Host::InOrder> file;
    Check(Host::Open(env_, Path(name), &file), "open " + name);
    return file;
  }

  std::unique_ptr<typename Host::Anywhere> Anywhere(const std::string& name) const {
    std::unique_ptr<typename Host::Anywhere> file;
    Check(Host::Open(env_, Path(name), &file), "open " + name);
    return file;
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
    Check(Host::Remove(env_, Path(name)), "remove " + name);
  }

 private:
  Env* const env_;
  const std::string directory_, ending_;
};

template <class Host>
void NamesComeAndGo(const Place<Host>& at) {
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
  std::unique_ptr<typename Host::InOrder> in_order;
  std::unique_ptr<typename Host::Anywhere> anywhere;
  const auto none = at.Path("none");
  Require(Host::IsNone(Host::Open(at.env(), none, &in_order)) && !in_order, "read in order");
  Require(Host::IsNone(Host::Open(at.env(), none, &anywhere)) && !anywhere, "read anywhere");
  Require(!Host::Remove(at.env(), none).ok(), "remove nothing");
  at.Remove("three");
  Require(!at.Has("three") && at.Children().empty(), "the directory is empty again");
}

template <class Host>
void BytesAreReadInOrderAndAnywhere(const Place<Host>& at) {
  at.Write("file", {"water ", "warm"});
  char scratch[100];
  typename Host::Slice got;
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
}

template <class Host>
void LargeWrites(const Place<Host>& at) {
  std::string large;
  for (size_t number = 0; large.size() < 300 * 1024; number++) {
    large += std::to_string(number * 2654435761u) + ' ';
  }
  const std::string half = large.substr(0, large.size() / 2);
  at.Write("file", {"head", large, half});
  Require(at.Read("file") == "head" + large + half, "large writes");
  const auto anywhere = at.Anywhere("file");
  std::vector<char> scratch(large.size());
  typename Host::Slice got;
  Check(anywhere->Read(4, large.size(), &got, scratch.data()), "a large read");
  Require(got == large, "its bytes");
}

template <class Host>
void OneLockAtATime(const Place<Host>& at) {
  typename Host::FileLock* lock = nullptr;
  Check(at.env()->LockFile(at.In("LOCK"), &lock), "lock");
  typename Host::FileLock* second = nullptr;
  Require(!at.env()->LockFile(at.In("LOCK"), &second).ok(), "it is locked");
  Check(at.env()->UnlockFile(lock), "unlock");
  Check(at.env()->LockFile(at.In("LOCK"), &lock), "lock again");
  Check(at.env()->UnlockFile(lock), "unlock again");
}

// What a host wrote to the first tier is a link there, to a file that is on it.
template <class Host>
void LogsLieOnTheFirstTier(const Place<Host>& at) {
  at.Write("file", {"x"});
  struct stat found;
  Require(lstat(at.Path("file").c_str(), &found) == 0, "lstat");
  const bool is_log = at.Name("") == ".log";
  Require(!is_log || S_ISLNK(found.st_mode), "a log is a link");
  Require(!at.Name("").empty() || S_ISREG(found.st_mode), "another file is none");
}

// Runs the cases of both hosts and the host's `own` ones; the exit status.
template <class Host>
int RunCases(typename Host::Env* env, const std::string& directory, const std::string& table,
             bool is_tiered, std::vector<void (*)(const Place<Host>&)> own) {
  own.insert(own.begin(), {NamesComeAndGo<Host>, BytesAreReadInOrderAndAnywhere<Host>,
                           LargeWrites<Host>, OneLockAtATime<Host>});
  int passed = 0;
  for (const std::string& ending : {std::string(), table, std::string(".log")}) {
    for (const auto& tried : own) {
      tried(Place<Host>(env, directory, ending));
      passed++;
    }
    if (is_tiered) LogsLieOnTheFirstTier(Place<Host>(env, directory, ending));
  }
  std::printf("env_test: %d cases with names of plain files, tables and logs\n", passed);
  return 0;
}

}  // namespace thermocline
