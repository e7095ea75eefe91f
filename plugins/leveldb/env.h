// LevelDB's environment over tiers: the host's own one, for which Thermocline chooses places.
//
//   logs, tables      thermocline_tiers.h says where they lie; the host's classes open them there
//   MANIFEST, LOG     the host's plain files, read along by the taps
//   CURRENT, LOCK ... the host's plain files
//
// 1. A name that is missing gets the host's own answer.
// 2. Questions about a file are answered through its link, which leads to the file. They are asked
//    again when a move takes the place away under them.
//
// Threads: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../tiers/tiers.h"
#include "leveldb/env.h"

namespace thermocline::of_leveldb {

class TappedLogger;

class TieredEnv : public leveldb::EnvWrapper {
 public:
  // `host` outlives it.
  TieredEnv(leveldb::Env* host, std::shared_ptr<Tiers> tiers);

  using Path = std::string;
  using Status = leveldb::Status;

  Status NewSequentialFile(const Path& path, leveldb::SequentialFile** result) override;
  Status NewRandomAccessFile(const Path& path, leveldb::RandomAccessFile** result) override;
  Status NewWritableFile(const Path& path, leveldb::WritableFile** result) override;
  Status NewAppendableFile(const Path& path, leveldb::WritableFile** result) override;
  Status NewLogger(const Path& path, leveldb::Logger** result) override;

  bool FileExists(const Path& path) override;
  Status GetFileSize(const Path& path, uint64_t* size) override;
  Status GetChildren(const Path& directory, std::vector<std::string>* names) override;
  Status RemoveFile(const Path& path) override;
  Status RemoveDir(const Path& directory) override;
  Status RenameFile(const Path& from, const Path& to) override;
  // Ours goes with the host's, so that another process may change the directory.
  Status LockFile(const Path& path, leveldb::FileLock** lock) override;
  Status UnlockFile(leveldb::FileLock* lock) override;

  // A log of information ends.
  void Forget(TappedLogger* logger);

 private:
  const std::shared_ptr<Tiers> tiers_;
  std::mutex lock_;
  // The directories of the locks that the host holds.
  std::map<leveldb::FileLock*, Path> locked_;
  std::set<TappedLogger*> loggers_;
};

}  // namespace thermocline::of_leveldb
