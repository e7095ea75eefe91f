// The calls of file_system.h that name files and directories without opening them.
#include <utility>

#include "file_system.h"
#include "places.h"
#include "small_files.h"

namespace thermocline {

using rocksdb::IOStatus;

namespace {

// Asks again where the name seems missing: a move may have taken the place away between the
// link and the file. A name that is missing is asked for twice.
template <typename Question>
IOStatus AskTwice(Question question) {
  const IOStatus status = question();
  return IsMissing(status) ? question() : status;
}

}  // namespace

IOStatus TieredFileSystem::FileExists(const Path& path, const IOOptions& options, Context* dbg) {
  return AskTwice([&] { return target()->FileExists(path, options, dbg); });
}

IOStatus TieredFileSystem::GetFileSize(const Path& path, const IOOptions& options, uint64_t* size,
                                       Context* dbg) {
  return AskTwice([&] { return target()->GetFileSize(path, options, size, dbg); });
}

IOStatus TieredFileSystem::GetFileModificationTime(const Path& path, const IOOptions& options,
                                                   uint64_t* time, Context* dbg) {
  return AskTwice([&] { return target()->GetFileModificationTime(path, options, time, dbg); });
}

IOStatus TieredFileSystem::NumFileLinks(const Path& path, const IOOptions& options,
                                        uint64_t* count, Context* dbg) {
  return AskTwice([&] { return target()->NumFileLinks(path, options, count, dbg); });
}

IOStatus TieredFileSystem::AreFilesSame(const Path& first, const Path& second,
                                        const IOOptions& options, bool* same, Context* dbg) {
  return AskTwice([&] { return target()->AreFilesSame(first, second, options, same, dbg); });
}

IOStatus TieredFileSystem::GetChildren(const Path& directory, const IOOptions& options,
                                       std::vector<std::string>* names, Context* dbg) {
  Entries entries;
  const Answer answer = tiers_->List(directory, &entries);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) {
    return target()->GetChildren(directory, options, names, dbg);
  }
  names->clear();
  if (!answer.IsOk()) return ToIOStatus(answer);
  const size_t count = thermocline_entries_count(entries.get());
  for (size_t at = 0; at < count; at++) {
    names->emplace_back(thermocline_entries_get(entries.get(), at).name);
  }
  return IOStatus::OK();
}

IOStatus TieredFileSystem::GetChildrenFileAttributes(const Path& directory,
                                                     const IOOptions& options,
                                                     std::vector<rocksdb::FileAttributes>* files,
                                                     Context* dbg) {
  Entries entries;
  const Answer answer = tiers_->List(directory, &entries);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) {
    return target()->GetChildrenFileAttributes(directory, options, files, dbg);
  }
  files->clear();
  if (!answer.IsOk()) return ToIOStatus(answer);
  const size_t count = thermocline_entries_count(entries.get());
  for (size_t at = 0; at < count; at++) {
    const thermocline_entry entry = thermocline_entries_get(entries.get(), at);
    rocksdb::FileAttributes file;
    file.name = entry.name;
    file.size_bytes = entry.len;
    files->push_back(std::move(file));
  }
  return IOStatus::OK();
}

IOStatus TieredFileSystem::GetFreeSpace(const Path& path, const IOOptions& options,
                                        uint64_t* bytes, Context* dbg) {
  const Answer answer = tiers_->FreeSpace(path, bytes);
  if (answer.IsOk()) return IOStatus::OK();
  return target()->GetFreeSpace(path, options, bytes, dbg);
}

IOStatus TieredFileSystem::DeleteFile(const Path& path, const IOOptions& options, Context* dbg) {
  const Answer answer = tiers_->Delete(path);
  if (answer.Is(THERMOCLINE_NOT_FOUND) && !IsLink(path)) {
    return target()->DeleteFile(path, options, dbg);
  }
  return ToIOStatus(answer);
}

IOStatus TieredFileSystem::RenameFile(const Path& from, const Path& to, const IOOptions& options,
                                      Context* dbg) {
  const Answer answer = tiers_->Rename(from, to);
  if (answer.Is(THERMOCLINE_NOT_FOUND) && !IsLink(from)) {
    return target()->RenameFile(from, to, options, dbg);
  }
  return ToIOStatus(answer);
}

IOStatus TieredFileSystem::LinkFile(const Path& from, const Path& to, const IOOptions& options,
                                    Context* dbg) {
  const Answer answer = tiers_->Link(from, to);
  if (answer.Is(THERMOCLINE_NOT_FOUND) && !IsLink(from)) {
    return target()->LinkFile(from, to, options, dbg);
  }
  return ToIOStatus(answer);
}

IOStatus TieredFileSystem::Truncate(const Path& path, size_t len, const IOOptions& options,
                                    Context* dbg) {
  const Answer answer = tiers_->Truncate(path, len);
  if (answer.Is(THERMOCLINE_NOT_FOUND) && !IsLink(path)) {
    return target()->Truncate(path, len, options, dbg);
  }
  return ToIOStatus(answer);
}

#if ROCKSDB_MAJOR >= 11
IOStatus TieredFileSystem::SyncFile(const Path& path, const FileOptions& files,
                                    const IOOptions& options, bool with_times, Context* dbg) {
  return FileSystem::SyncFile(path, files, options, with_times, dbg);
}
#endif

IOStatus TieredFileSystem::LockFile(const Path& path, const IOOptions& options,
                                    rocksdb::FileLock** lock, Context* dbg) {
  const IOStatus status = target()->LockFile(path, options, lock, dbg);
  if (status.ok()) {
    const std::lock_guard<std::mutex> guard(lock_);
    locked_[*lock] = DirectoryOf(path);
  }
  return status;
}

IOStatus TieredFileSystem::UnlockFile(rocksdb::FileLock* lock, const IOOptions& options,
                                      Context* dbg) {
  Path directory;
  std::vector<std::weak_ptr<TappedLogger>> loggers;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    loggers = loggers_;
    const auto found = locked_.find(lock);
    if (found != locked_.end()) {
      directory = found->second;
      locked_.erase(found);
    }
  }
  for (const std::weak_ptr<TappedLogger>& logger : loggers) {
    if (const auto live = logger.lock()) live->LogFigures();
  }
  if (!directory.empty()) {
    // It stays ours until the last file is closed, should the host still have one.
    tiers_->ReleaseDirectory(directory);
  }
  return target()->UnlockFile(lock, options, dbg);
}

IOStatus TieredFileSystem::DeleteDir(const Path& directory, const IOOptions& options,
                                     Context* dbg) {
  const Answer answer = tiers_->RemoveDirectory(directory);
  if (answer.Is(THERMOCLINE_NOT_FOUND)) return target()->DeleteDir(directory, options, dbg);
  return ToIOStatus(answer);
}

}  // namespace thermocline
