// A managed file that the host reads: its own file class at the place where the file lies now, or
// its copy on a faster tier.
//
// 1. Each read loads the epoch of the place. When that rose, one thread opens the new place; others
//    go on with the file they have, whose bytes are the same. So does a file that is not read, before
//    the next one is made (open_readers.h). Most reads call nothing but the host (file_reads.h).
// 2. Where the new place cannot be opened (too many open files), reads go on with the old file, and
//    the next one tries again.
// 3. A file that is mapped stays mapped: the host keeps pointers into it. No extents are used then.
// 4. Asynchronous reads and prefetches pass extents by, and take no time of an emulated device.
// 5. Several reads of one call stay one call to the host, with the extents that are wanted in the
//    stead of what was asked for; bytes that one of them reads already are not wanted again.
// 6. Direct reads suit the devices of all tiers, since a host asks how they are to be before a read
//    and the file may move in between.
//
// Threads: any, as the host's.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "../tiers/current_file.h"
#include "../tiers/file_reads.h"
#include "../tiers/tiers.h"
#include "rocksdb/file_system.h"
#include "rocksdb/version.h"

namespace thermocline {

// What a host is told of an asynchronous read that is done.
#if ROCKSDB_MAJOR >= 11
using ReadDone = rocksdb::FSReadRequest;
#else
using ReadDone = const rocksdb::FSReadRequest;
#endif

class TieredRandomAccessFile : public rocksdb::FSRandomAccessFile, private OpenReaders::Reader {
 public:
  static rocksdb::IOStatus Open(std::shared_ptr<rocksdb::FileSystem> host,
                                std::shared_ptr<Tiers> tiers, OpenFile file,
                                const rocksdb::FileOptions& options,
                                std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                rocksdb::IODebugContext* dbg);

  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) const override;
  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Prefetch(uint64_t offset, size_t n, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReadAsync(rocksdb::FSReadRequest& request, const rocksdb::IOOptions& options,
                              std::function<void(ReadDone&, void*)> done, void* argument,
                              void** handle, rocksdb::IOHandleDeleter* deleter,
                              rocksdb::IODebugContext* dbg) override;
#if ROCKSDB_MAJOR >= 11
  bool SubmitReadAsync(rocksdb::FSReadRequest& request, const rocksdb::IOOptions& options,
                       std::function<void(rocksdb::FSReadRequest&)> done,
                       rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFileSize(uint64_t* size) override;
#endif
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;
  void Hint(AccessPattern pattern) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;
  bool use_direct_io() const override;
  size_t GetRequiredBufferAlignment() const override;
  rocksdb::Temperature GetTemperature() const override;

 private:
  using Host = rocksdb::FSRandomAccessFile;

  TieredRandomAccessFile(std::shared_ptr<rocksdb::FileSystem> host, std::shared_ptr<Tiers> tiers,
                         OpenFile file, const rocksdb::FileOptions& options, uint64_t epoch,
                         std::unique_ptr<Host> opened);

  CurrentFile<Host>::Use Now() const;
  void FollowIfMoved() const override;
  void TellReads() const override;
  void Follow() const;
  // True where the answer comes from extents, or was read from `now` with what they want. Only where
  // extents are kept.
  bool ReadExtents(const Host& now, uint64_t epoch, uint64_t offset, size_t n,
                   const rocksdb::IOOptions& options, rocksdb::Slice* result, char* scratch,
                   rocksdb::IODebugContext* dbg) const;

  const std::shared_ptr<rocksdb::FileSystem> host_;
  const std::shared_ptr<Tiers> tiers_;
  const OpenFile file_;
  const rocksdb::FileOptions options_;
  // Reads ask for extents.
  const bool by_extents_;
  const bool is_direct_;
  // What offsets, lengths and buffers of direct reads are multiples of.
  const size_t direct_unit_;
  const thermocline_file* const charged_;
  const FileReads reads_;
  mutable CurrentFile<Host> current_;
  // The epoch of the place that is open.
  mutable std::atomic<uint64_t> epoch_;
  mutable std::mutex following_;
  // The last hint, for the file to come; kNoHint where there was none.
  std::atomic<int> hint_;
  const OpenReaders::Known known_;
};

}  // namespace thermocline
