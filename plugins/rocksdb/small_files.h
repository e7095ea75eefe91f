// The other things that a host opens: a file to read and write in place, a directory, a log of
// information.
//
// Threads: as the host's classes.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "../tiers/due.h"
#include "../tiers/tiers.h"
#include "rocksdb/file_system.h"

namespace thermocline {

// A managed file that is written in place; its syncs make the name durable, too.
class TieredReadWriteFile : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  TieredReadWriteFile(OpenFile file, std::unique_ptr<rocksdb::FSRandomRWFile> opened);

  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* dbg) override;

 private:
  rocksdb::IOStatus Synced(rocksdb::IOStatus synced);

  const OpenFile file_;
};

// A directory whose sync covers the tiers first.
class TieredDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  TieredDirectory(std::shared_ptr<Tiers> tiers, const std::string& path,
                  std::unique_ptr<rocksdb::FSDirectory> opened);

  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options,
                                        rocksdb::IODebugContext* dbg,
                                        const rocksdb::DirFsyncOptions& why) override;

 private:
  const std::shared_ptr<Tiers> tiers_;
  const std::string path_;
};

// The host's log of information, whose lines the tap sees on their way. Now and then, and when a
// directory is given back, it gets a line of figures.
class TappedLogger : public rocksdb::LoggerWrapper {
 public:
  TappedLogger(std::shared_ptr<Tiers> tiers, std::shared_ptr<rocksdb::Logger> logger);

  using rocksdb::LoggerWrapper::Logv;
  void Logv(const char* format, va_list arguments) override;
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list arguments) override;

  // Does nothing once the host has closed its log.
  void LogFigures();
  rocksdb::Status Close() override;

 private:
  const std::shared_ptr<Tiers> tiers_;
  const std::shared_ptr<rocksdb::Logger> logger_;
  FiguresDue figures_;
  // Held while figures are written, so that the log is not closed under them.
  std::mutex lock_;
  bool is_closed_ = false;
};

}  // namespace thermocline
