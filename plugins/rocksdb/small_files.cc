// See small_files.h.
#include "small_files.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "../tiers/level_context.h"
#include "status.h"

namespace thermocline {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

TieredReadWriteFile::TieredReadWriteFile(OpenFile file,
                                         std::unique_ptr<rocksdb::FSRandomRWFile> opened)
    : FSRandomRWFileOwnerWrapper(std::move(opened)), file_(std::move(file)) {}

IOStatus TieredReadWriteFile::Sync(const IOOptions& options, IODebugContext* dbg) {
  return Synced(target()->Sync(options, dbg));
}

IOStatus TieredReadWriteFile::Fsync(const IOOptions& options, IODebugContext* dbg) {
  return Synced(target()->Fsync(options, dbg));
}

IOStatus TieredReadWriteFile::Synced(IOStatus synced) {
  if (!synced.ok()) return synced;
  return ToIOStatus(thermocline::Synced(file_.get()));
}

TieredDirectory::TieredDirectory(std::shared_ptr<Tiers> tiers, const std::string& path,
                                 std::unique_ptr<rocksdb::FSDirectory> opened)
    : FSDirectoryWrapper(std::move(opened)), tiers_(std::move(tiers)), path_(path) {}

IOStatus TieredDirectory::Fsync(const IOOptions&, IODebugContext*) {
  return ToIOStatus(tiers_->SyncDirectory(path_));
}

// The host leaves some syncs out where a file system needs none (btrfs); those of links it does
// not know.
IOStatus TieredDirectory::FsyncWithDirOptions(const IOOptions& options, IODebugContext* dbg,
                                              const rocksdb::DirFsyncOptions&) {
  return Fsync(options, dbg);
}

namespace {

// The longest part of a line in which the taps find something.
constexpr size_t kLineBytesMax = 1024;

void SeeLine(const char* format, va_list arguments) {
  char line[kLineBytesMax];
  va_list copy;
  va_copy(copy, arguments);
  const int len = std::vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  if (len <= 0) return;
  const LineSays says =
      ReadLogLine(line, std::min<size_t>(static_cast<size_t>(len), sizeof(line) - 1));
  if (says.what == LineSays::What::kJobBegins) BeginJob(says.level, says.origin);
  if (says.what == LineSays::What::kJobEnds) EndJob();
}

}  // namespace

TappedLogger::TappedLogger(std::shared_ptr<Tiers> tiers, std::shared_ptr<rocksdb::Logger> logger)
    : LoggerWrapper(logger.get()), tiers_(std::move(tiers)), logger_(std::move(logger)) {}

void TappedLogger::LogFigures() {
  std::string json;
  const Answer answer = tiers_->Stats(&json);
  const std::string& text = answer.IsOk() ? json : answer.text();
  const std::lock_guard<std::mutex> guard(lock_);
  if (is_closed_) return;
  rocksdb::Log(rocksdb::InfoLogLevel::INFO_LEVEL, logger_.get(), "[thermocline] %s", text.c_str());
}

rocksdb::Status TappedLogger::Close() {
  const std::lock_guard<std::mutex> guard(lock_);
  is_closed_ = true;
  return logger_->Close();
}

void TappedLogger::Logv(const char* format, va_list arguments) {
  SeeLine(format, arguments);
  logger_->Logv(format, arguments);
  if (figures_.Take()) LogFigures();
}

void TappedLogger::Logv(const rocksdb::InfoLogLevel level, const char* format,
                        va_list arguments) {
  SeeLine(format, arguments);
  logger_->Logv(level, format, arguments);
  if (figures_.Take()) LogFigures();
}

}  // namespace thermocline
