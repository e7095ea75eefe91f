// A managed file that the host writes: its own file class at the place where the file lies, and
// the next tier where a device is full.
//
//   append -> no space -> continue_elsewhere(known length) -> open the new place -> append again
//
// 1. The known length is that of the appends that succeeded: what part of a failed one reached the
//    device is cut off, so that its repetition does not double it.
// 2. The host hears of a full device only when every tier refused.
// 3. A sync that succeeds has made the bytes durable, then the name where the host relies on that:
//    of logs. It syncs the directory of its tables and blobs itself, once for all files of a job,
//    before the MANIFEST names them.
// 4. Once a file has gone on elsewhere and cannot be opened there, all later appends fail: the host
//    would write to a file without a name.
//
// Threads: one, except that Sync and Fsync may run beside appends where the host's class allows it, and
// hold the file that they began with open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../tiers/current_file.h"
#include "../tiers/tiers.h"
#include "rocksdb/file_system.h"

namespace thermocline {

class TieredWritableFile : public rocksdb::FSWritableFile {
 public:
  // `len` is what the file at `path` holds already.
  TieredWritableFile(std::shared_ptr<rocksdb::FileSystem> host, const std::string& path,
                     OpenFile file, uint64_t len, const rocksdb::FileOptions& options,
                     std::unique_ptr<rocksdb::FSWritableFile> opened);

  using IOOptions = rocksdb::IOOptions;
  using IOStatus = rocksdb::IOStatus;
  using Context = rocksdb::IODebugContext;
  using Slice = rocksdb::Slice;
  using Verification = rocksdb::DataVerificationInfo;

  IOStatus Append(const Slice& data, const IOOptions& options, Context* dbg) override;
  IOStatus Append(const Slice& data, const IOOptions& options, const Verification& sum,
                  Context* dbg) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            Context* dbg) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const Verification& sum, Context* dbg) override;
  IOStatus Truncate(uint64_t size, const IOOptions& options, Context* dbg) override;
  IOStatus Close(const IOOptions& options, Context* dbg) override;
  IOStatus Flush(const IOOptions& options, Context* dbg) override;
  IOStatus Sync(const IOOptions& options, Context* dbg) override;
  IOStatus Fsync(const IOOptions& options, Context* dbg) override;
  IOStatus RangeSync(uint64_t offset, uint64_t nbytes, const IOOptions& options,
                     Context* dbg) override;
  IOStatus InvalidateCache(size_t offset, size_t length) override;
  IOStatus Allocate(uint64_t offset, uint64_t len, const IOOptions& options,
                    Context* dbg) override;
  void PrepareWrite(size_t offset, size_t len, const IOOptions& options, Context* dbg) override;
  void SetPreallocationBlockSize(size_t size) override;
  void GetPreallocationStatus(size_t* block_size, size_t* last_allocated_block) override;
  void SetWriteLifeTimeHint(rocksdb::Env::WriteLifeTimeHint hint) override;
  rocksdb::Env::WriteLifeTimeHint GetWriteLifeTimeHint() override;
  void SetIOPriority(rocksdb::Env::IOPriority priority) override;
  uint64_t GetFileSize(const IOOptions& options, Context* dbg) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;
  bool IsSyncThreadSafe() const override;
  bool use_direct_io() const override;
  size_t GetRequiredBufferAlignment() const override;

 private:
  using Host = rocksdb::FSWritableFile;

  template <typename Attempt>
  IOStatus Write(Attempt attempt);
  bool GoOnElsewhere(Context* dbg);
  IOStatus OpenNewPlace(std::unique_ptr<Host>* opened, Context* dbg);
  IOStatus Synced(IOStatus synced);

  const std::shared_ptr<rocksdb::FileSystem> host_;
  // Until it is closed: it may move then.
  OpenFile file_;
  const rocksdb::FileOptions options_;
  const bool is_direct_;
  // What offsets, lengths and buffers of direct writes are multiples of.
  const size_t direct_unit_;
  // As long as `file_` is there.
  const thermocline_file* charged_;
  // Invariant 3.
  const bool syncs_name_;
  // What `current_` has now, for the calls of the thread that writes: only it puts another one there.
  Host* writing_;
  CurrentFile<Host> current_;
  uint64_t len_;
  bool went_elsewhere_ = false;
  // Invariant 4.
  IOStatus lost_;
};

}  // namespace thermocline
