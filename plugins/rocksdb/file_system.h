// RocksDB's file system over tiers: the host's own one, for which Thermocline chooses places.
//
//   logs, tables, blobs   thermocline_tiers.h says where they lie; the host's classes open them there
//   MANIFEST, LOG         the host's plain files, read along by the taps
//   CURRENT, OPTIONS ...  the host's plain files
//
// 1. No byte of a file passes through Thermocline.
// 2. A name that is missing gets the host's own answer: its callers tell several kinds apart.
// 3. Questions about a file (length, age, sameness) are answered through its link, which leads to
//    the file. They are asked again when a move takes the place away under them.
//
// Threads: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../tiers/tiers.h"
#include "rocksdb/file_system.h"
#include "rocksdb/version.h"

namespace thermocline {

class TappedLogger;

class TieredFileSystem : public rocksdb::FileSystemWrapper {
 public:
  // Null, and why, where the URI or one of its tiers is refused.
  static std::shared_ptr<rocksdb::FileSystem> Open(const std::string& uri, std::string* why);

  TieredFileSystem(const std::shared_ptr<rocksdb::FileSystem>& host, std::shared_ptr<Tiers> tiers);

  static const char* kClassName() { return "Thermocline"; }
  const char* Name() const override { return kClassName(); }

  using Path = std::string;
  using FileOptions = rocksdb::FileOptions;
  using IOOptions = rocksdb::IOOptions;
  using IOStatus = rocksdb::IOStatus;
  using Context = rocksdb::IODebugContext;
  using SequentialFile = std::unique_ptr<rocksdb::FSSequentialFile>;
  using RandomAccessFile = std::unique_ptr<rocksdb::FSRandomAccessFile>;
  using WritableFile = std::unique_ptr<rocksdb::FSWritableFile>;
  using ReadWriteFile = std::unique_ptr<rocksdb::FSRandomRWFile>;

  IOStatus NewSequentialFile(const Path& path, const FileOptions& options, SequentialFile* result,
                             Context* dbg) override;
  IOStatus NewRandomAccessFile(const Path& path, const FileOptions& options,
                               RandomAccessFile* result, Context* dbg) override;
  IOStatus NewWritableFile(const Path& path, const FileOptions& options, WritableFile* result,
                           Context* dbg) override;
  IOStatus ReopenWritableFile(const Path& path, const FileOptions& options, WritableFile* result,
                              Context* dbg) override;
  IOStatus ReuseWritableFile(const Path& path, const Path& old, const FileOptions& options,
                             WritableFile* result, Context* dbg) override;
  IOStatus NewRandomRWFile(const Path& path, const FileOptions& options, ReadWriteFile* result,
                           Context* dbg) override;
  IOStatus NewDirectory(const Path& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result, Context* dbg) override;
  IOStatus NewLogger(const Path& path, const IOOptions& options,
                     std::shared_ptr<rocksdb::Logger>* result, Context* dbg) override;

  IOStatus FileExists(const Path& path, const IOOptions& options, Context* dbg) override;
  IOStatus GetFileSize(const Path& path, const IOOptions& options, uint64_t* size,
                       Context* dbg) override;
  IOStatus GetFileModificationTime(const Path& path, const IOOptions& options, uint64_t* time,
                                   Context* dbg) override;
  IOStatus NumFileLinks(const Path& path, const IOOptions& options, uint64_t* count,
                        Context* dbg) override;
  IOStatus AreFilesSame(const Path& first, const Path& second, const IOOptions& options, bool* same,
                        Context* dbg) override;
  IOStatus GetChildren(const Path& directory, const IOOptions& options,
                       std::vector<std::string>* names, Context* dbg) override;
  IOStatus GetChildrenFileAttributes(const Path& directory, const IOOptions& options,
                                     std::vector<rocksdb::FileAttributes>* files,
                                     Context* dbg) override;
  IOStatus GetFreeSpace(const Path& path, const IOOptions& options, uint64_t* bytes,
                        Context* dbg) override;

  IOStatus DeleteFile(const Path& path, const IOOptions& options, Context* dbg) override;
  IOStatus RenameFile(const Path& from, const Path& to, const IOOptions& options,
                      Context* dbg) override;
  IOStatus LinkFile(const Path& from, const Path& to, const IOOptions& options,
                    Context* dbg) override;
  IOStatus Truncate(const Path& path, size_t len, const IOOptions& options, Context* dbg) override;
#if ROCKSDB_MAJOR >= 11
  // By the calls above, so that the name is durable, too.
  IOStatus SyncFile(const Path& path, const FileOptions& files, const IOOptions& options,
                    bool with_times, Context* dbg) override;
#endif
  // Ours goes with the host's, so that another process may change the directory.
  IOStatus LockFile(const Path& path, const IOOptions& options, rocksdb::FileLock** lock,
                    Context* dbg) override;
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions& options, Context* dbg) override;
  IOStatus DeleteDir(const Path& directory, const IOOptions& options, Context* dbg) override;

 private:
  Answer OpenOrCreateManaged(const Path& path, const FileOptions& options, OpenFile* file,
                             Context* dbg);
  IOStatus Reopen(const Path& path, OpenFile file, const FileOptions& options,
                  WritableFile* result, Context* dbg);

  const std::shared_ptr<Tiers> tiers_;
  std::mutex lock_;
  // The directories of the locks that the host holds.
  std::map<rocksdb::FileLock*, Path> locked_;
  std::vector<std::weak_ptr<TappedLogger>> loggers_;
};

}  // namespace thermocline
