// See env.h.
#include "env.h"

#include <utility>

#include "../tiers/level_context.h"
#include "../tiers/paths.h"
#include "files.h"
#include "logger.h"
#include "status.h"

namespace thermocline::of_leveldb {

using leveldb::Status;

TieredEnv::TieredEnv(leveldb::Env* host, std::shared_ptr<Tiers> tiers)
    : EnvWrapper(host), tiers_(std::move(tiers)) {}

// A reader finishes where it began: only the opening minds a move.
Status TieredEnv::NewSequentialFile(const Path& path, leveldb::SequentialFile** result) {
  *result = nullptr;
  OpenFile file;
  const Answer answer = tiers_->OpenToRead(path, &file);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return target()->NewSequentialFile(path, result);
  if (!answer.IsOk()) return ToStatus(answer);
  if (file != nullptr) {
    uint64_t epoch = 0;
    return OpenAtPlace(file.get(), Access::kRead, &epoch, [&](const Path& place) {
      return target()->NewSequentialFile(place, result);
    });
  }
  const Status status = target()->NewSequentialFile(path, result);
  if (status.ok() && IsManifest(path)) {
    *result = new TappedManifestReader(tiers_, path,
                                       std::unique_ptr<leveldb::SequentialFile>(*result));
  }
  return status;
}

Status TieredEnv::NewRandomAccessFile(const Path& path, leveldb::RandomAccessFile** result) {
  *result = nullptr;
  OpenFile file;
  const Answer answer = tiers_->OpenToRead(path, &file);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return target()->NewRandomAccessFile(path, result);
  if (!answer.IsOk()) return ToStatus(answer);
  if (file == nullptr) return target()->NewRandomAccessFile(path, result);
  const Status status = MappedFile::Open(tiers_, &file, result);
  if (!status.ok() || *result != nullptr) return status;
  return TieredRandomAccessFile::Open(target(), tiers_, std::move(file), result);
}

Status TieredEnv::NewWritableFile(const Path& path, leveldb::WritableFile** result) {
  *result = nullptr;
  OpenFile file;
  const thermocline_new_file of = NewFile(path, THERMOCLINE_HEAT_NOT_SAID);
  const Answer answer = tiers_->CreateFile(path, of, &file);
  // The directory is missing.
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return target()->NewWritableFile(path, result);
  if (!answer.IsOk()) return ToStatus(answer);
  leveldb::WritableFile* opened = nullptr;
  if (file == nullptr) {
    const Status status = target()->NewWritableFile(path, &opened);
    if (!status.ok()) return status;
    std::unique_ptr<leveldb::WritableFile> plain(opened);
    *result = IsManifest(path) ? new TappedManifestWriter(tiers_, path, std::move(plain))
                               : plain.release();
    return status;
  }
  uint64_t epoch = 0;
  const Status status = OpenAtPlace(file.get(), Access::kWrite, &epoch, [&](const Path& place) {
    return target()->NewWritableFile(place, &opened);
  });
  if (!status.ok()) return status;
  *result = new TieredWritableFile(target(), std::move(file), 0,
                                   std::unique_ptr<leveldb::WritableFile>(opened));
  return status;
}

Status TieredEnv::NewAppendableFile(const Path& path, leveldb::WritableFile** result) {
  *result = nullptr;
  OpenFile file;
  const Answer answer = tiers_->OpenToWrite(path, &file);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return NewWritableFile(path, result);
  if (!answer.IsOk()) return ToStatus(answer);
  if (file == nullptr) {
    return FileExists(path) ? target()->NewAppendableFile(path, result)
                            : NewWritableFile(path, result);
  }
  uint64_t len = 0;
  Status status = GetFileSize(path, &len);
  if (!status.ok()) return status;
  uint64_t epoch = 0;
  leveldb::WritableFile* opened = nullptr;
  status = OpenAtPlace(file.get(), Access::kWrite, &epoch, [&](const Path& place) {
    return target()->NewAppendableFile(place, &opened);
  });
  if (!status.ok()) return status;
  *result = new TieredWritableFile(target(), std::move(file), len,
                                   std::unique_ptr<leveldb::WritableFile>(opened));
  return status;
}

Status TieredEnv::NewLogger(const Path& path, leveldb::Logger** result) {
  const Status status = target()->NewLogger(path, result);
  if (!status.ok()) return status;
  auto* const logger =
      new TappedLogger(this, tiers_, DirectoryOf(path), std::unique_ptr<leveldb::Logger>(*result));
  *result = logger;
  const std::lock_guard<std::mutex> guard(lock_);
  loggers_.insert(logger);
  return status;
}

void TieredEnv::Forget(TappedLogger* logger) {
  const std::lock_guard<std::mutex> guard(lock_);
  loggers_.erase(logger);
}

bool TieredEnv::FileExists(const Path& path) {
  return target()->FileExists(path) || target()->FileExists(path);
}

Status TieredEnv::GetFileSize(const Path& path, uint64_t* size) {
  const Status status = target()->GetFileSize(path, size);
  return status.ok() ? status : target()->GetFileSize(path, size);
}

Status TieredEnv::GetChildren(const Path& directory, std::vector<std::string>* names) {
  Entries entries;
  const Answer answer = tiers_->List(directory, &entries);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return target()->GetChildren(directory, names);
  names->clear();
  if (!answer.IsOk()) return ToStatus(answer);
  const size_t count = thermocline_entries_count(entries.get());
  for (size_t at = 0; at < count; at++) {
    names->emplace_back(thermocline_entries_get(entries.get(), at).name);
  }
  return Status::OK();
}

Status TieredEnv::RemoveFile(const Path& path) {
  const Answer answer = tiers_->Delete(path);
  if (answer.Is(THERMOCLINE_NOT_FOUND) && !IsLink(path)) return target()->RemoveFile(path);
  return ToStatus(answer);
}

Status TieredEnv::RemoveDir(const Path& directory) {
  const Answer answer = tiers_->RemoveDirectory(directory);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return target()->RemoveDir(directory);
  return ToStatus(answer);
}

Status TieredEnv::RenameFile(const Path& from, const Path& to) {
  const Answer answer = tiers_->Rename(from, to);
  if (answer.Is(THERMOCLINE_NOT_FOUND) && !IsLink(from)) return target()->RenameFile(from, to);
  return ToStatus(answer);
}

Status TieredEnv::LockFile(const Path& path, leveldb::FileLock** lock) {
  const Status status = target()->LockFile(path, lock);
  if (status.ok()) {
    const std::lock_guard<std::mutex> guard(lock_);
    locked_[*lock] = DirectoryOf(path);
  }
  return status;
}

// LevelDB closes its log and its tables after this: the directory stays ours until then.
Status TieredEnv::UnlockFile(leveldb::FileLock* lock) {
  {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = locked_.find(lock);
    if (found != locked_.end()) {
      for (TappedLogger* logger : loggers_) {
        if (logger->directory() == found->second) logger->LogFigures();
      }
      tiers_->ReleaseDirectory(found->second);
      locked_.erase(found);
    }
  }
  return target()->UnlockFile(lock);
}

}  // namespace thermocline::of_leveldb
