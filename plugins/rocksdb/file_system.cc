// See file_system.h. This file opens files; names.cc has the calls that only name them.
#include "file_system.h"

#include <algorithm>
#include <utility>

#include "../tiers/level_context.h"
#include "manifest_files.h"
#include "places.h"
#include "random_access_file.h"
#include "small_files.h"
#include "writable_file.h"

namespace thermocline {

using rocksdb::IOStatus;
using rocksdb::Temperature;

namespace {

int32_t HeatOf(Temperature temperature) {
  switch (temperature) {
    case Temperature::kHot:
      return THERMOCLINE_HEAT_HOT;
    case Temperature::kWarm:
      return THERMOCLINE_HEAT_WARM;
    case Temperature::kCold:
      return THERMOCLINE_HEAT_COLD;
    default:
      return THERMOCLINE_HEAT_NOT_SAID;
  }
}

}  // namespace

std::shared_ptr<rocksdb::FileSystem> TieredFileSystem::Open(const std::string& uri,
                                                            std::string* why) {
  std::shared_ptr<Tiers> tiers = Tiers::Open(uri, why);
  if (tiers == nullptr) return nullptr;
  return std::make_shared<TieredFileSystem>(rocksdb::FileSystem::Default(), std::move(tiers));
}

TieredFileSystem::TieredFileSystem(const std::shared_ptr<rocksdb::FileSystem>& host,
                                   std::shared_ptr<Tiers> tiers)
    : FileSystemWrapper(host), tiers_(std::move(tiers)) {}

Answer TieredFileSystem::OpenOrCreateManaged(const Path& path, const FileOptions& options,
                                             OpenFile* file, Context* dbg) {
  Answer opened = tiers_->OpenToWrite(path, file);
  if (!opened.IsOk() || *file != nullptr) return opened;
  const bool is_there = FileExists(path, options.io_options, dbg).ok();
  if (is_there) return opened;
  return tiers_->CreateFile(path, NewFile(path, HeatOf(options.temperature)), file);
}

// A reader finishes where it began: only the opening minds a move.
IOStatus TieredFileSystem::NewSequentialFile(const Path& path, const FileOptions& options,
                                             SequentialFile* result, Context* dbg) {
  OpenFile file;
  const Answer answer = tiers_->OpenToRead(path, &file);
  if (!answer.IsOk()) return ToIOStatus(answer);
  if (file != nullptr) {
    uint64_t epoch = 0;
    return OpenAtPlace(file.get(), Access::kRead, &epoch, [&](const std::string& place) {
      return target()->NewSequentialFile(place, options, result, dbg);
    });
  }
  const IOStatus status = target()->NewSequentialFile(path, options, result, dbg);
  if (status.ok() && IsManifest(path)) {
    *result = std::make_unique<TappedManifestReader>(tiers_, path, std::move(*result));
  }
  return status;
}

IOStatus TieredFileSystem::NewRandomAccessFile(const Path& path, const FileOptions& options,
                                               RandomAccessFile* result, Context* dbg) {
  OpenFile file;
  const Answer answer = tiers_->OpenToRead(path, &file);
  if (!answer.IsOk()) return ToIOStatus(answer);
  if (file == nullptr) return target()->NewRandomAccessFile(path, options, result, dbg);
  return TieredRandomAccessFile::Open(target_, tiers_, std::move(file), options, result, dbg);
}

IOStatus TieredFileSystem::NewWritableFile(const Path& path, const FileOptions& options,
                                           WritableFile* result, Context* dbg) {
  OpenFile file;
  const thermocline_new_file of = NewFile(path, HeatOf(options.temperature));
  const Answer answer = tiers_->CreateFile(path, of, &file);
  if (!answer.IsOk()) return ToIOStatus(answer);
  if (file == nullptr) {
    const IOStatus status = target()->NewWritableFile(path, options, result, dbg);
    if (status.ok() && IsManifest(path)) {
      *result = std::make_unique<TappedManifestWriter>(tiers_, path, std::move(*result));
    }
    return status;
  }
  uint64_t epoch = 0;
  WritableFile opened;
  const auto open = [&](const std::string& place) {
    return target()->NewWritableFile(place, options, &opened, dbg);
  };
  const IOStatus status = OpenAtPlace(file.get(), Access::kWrite, &epoch, open);
  if (!status.ok()) return status;
  *result = std::make_unique<TieredWritableFile>(target_, path, std::move(file), 0, options,
                                                 std::move(opened));
  return status;
}

IOStatus TieredFileSystem::ReopenWritableFile(const Path& path, const FileOptions& options,
                                              WritableFile* result, Context* dbg) {
  OpenFile file;
  const Answer answer = OpenOrCreateManaged(path, options, &file, dbg);
  if (!answer.IsOk()) return ToIOStatus(answer);
  if (file == nullptr) return target()->ReopenWritableFile(path, options, result, dbg);
  return Reopen(path, std::move(file), options, result, dbg);
}

IOStatus TieredFileSystem::Reopen(const Path& path, OpenFile file, const FileOptions& options,
                                  WritableFile* result, Context* dbg) {
  uint64_t len = 0;
  IOStatus status = GetFileSize(path, options.io_options, &len, dbg);
  if (!status.ok()) return status;
  uint64_t epoch = 0;
  WritableFile opened;
  status = OpenAtPlace(file.get(), Access::kWrite, &epoch, [&](const std::string& place) {
    return target()->ReopenWritableFile(place, options, &opened, dbg);
  });
  if (!status.ok()) return status;
  *result = std::make_unique<TieredWritableFile>(target_, path, std::move(file), len, options,
                                                 std::move(opened));
  return status;
}

// The name is changed here. The host then renames the file to itself, which does nothing, and
// opens it as it opens a log that is used again: from the front, without cutting it.
IOStatus TieredFileSystem::ReuseWritableFile(const Path& path, const Path& old,
                                             const FileOptions& options, WritableFile* result,
                                             Context* dbg) {
  IOStatus status = RenameFile(old, path, options.io_options, dbg);
  if (!status.ok()) return status;
  OpenFile file;
  const Answer answer = tiers_->OpenToWrite(path, &file);
  if (!answer.IsOk()) return ToIOStatus(answer);
  if (file == nullptr) return target()->ReuseWritableFile(path, path, options, result, dbg);
  uint64_t epoch = 0;
  WritableFile opened;
  status = OpenAtPlace(file.get(), Access::kWrite, &epoch, [&](const std::string& place) {
    return target()->ReuseWritableFile(place, place, options, &opened, dbg);
  });
  if (!status.ok()) return status;
  *result = std::make_unique<TieredWritableFile>(target_, path, std::move(file), 0, options,
                                                 std::move(opened));
  return status;
}

IOStatus TieredFileSystem::NewRandomRWFile(const Path& path, const FileOptions& options,
                                           ReadWriteFile* result, Context* dbg) {
  OpenFile file;
  const Answer answer = OpenOrCreateManaged(path, options, &file, dbg);
  if (!answer.IsOk()) return ToIOStatus(answer);
  if (file == nullptr) return target()->NewRandomRWFile(path, options, result, dbg);
  uint64_t epoch = 0;
  ReadWriteFile opened;
  const auto open = [&](const std::string& place) {
    return target()->NewRandomRWFile(place, options, &opened, dbg);
  };
  const IOStatus status = OpenAtPlace(file.get(), Access::kWrite, &epoch, open);
  if (!status.ok()) return status;
  *result = std::make_unique<TieredReadWriteFile>(std::move(file), std::move(opened));
  return status;
}

IOStatus TieredFileSystem::NewDirectory(const Path& path, const IOOptions& options,
                                        std::unique_ptr<rocksdb::FSDirectory>* result,
                                        Context* dbg) {
  std::unique_ptr<rocksdb::FSDirectory> opened;
  const IOStatus status = target()->NewDirectory(path, options, &opened, dbg);
  if (!status.ok()) return status;
  *result = std::make_unique<TieredDirectory>(tiers_, path, std::move(opened));
  return status;
}

IOStatus TieredFileSystem::NewLogger(const Path& path, const IOOptions& options,
                                     std::shared_ptr<rocksdb::Logger>* result, Context* dbg) {
  const IOStatus status = target()->NewLogger(path, options, result, dbg);
  if (!status.ok()) return status;
  const auto logger = std::make_shared<TappedLogger>(tiers_, std::move(*result));
  *result = logger;
  const std::lock_guard<std::mutex> guard(lock_);
  const auto is_gone = [](const std::weak_ptr<TappedLogger>& other) { return other.expired(); };
  loggers_.erase(std::remove_if(loggers_.begin(), loggers_.end(), is_gone), loggers_.end());
  loggers_.push_back(logger);
  return status;
}

}  // namespace thermocline
