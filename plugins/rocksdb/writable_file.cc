// See writable_file.h.
#include "writable_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "../tiers/charge.h"
#include "places.h"

namespace thermocline {

using rocksdb::Env;

namespace {

// The host's class for mappings has no code for it, only the text.
bool IsFull(const rocksdb::IOStatus& status, const rocksdb::FileOptions& options) {
  if (status.ok() || status.IsNoSpace() || !options.use_mmap_writes) return status.IsNoSpace();
  const char* const state = status.getState();
  return state != nullptr && std::strstr(state, std::strerror(ENOSPC)) != nullptr;
}

}  // namespace

TieredWritableFile::TieredWritableFile(std::shared_ptr<rocksdb::FileSystem> host,
                                       const std::string& path, OpenFile file, uint64_t len,
                                       const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile> opened)
    : FSWritableFile(options),
      host_(std::move(host)),
      file_(std::move(file)),
      options_(options),
      is_direct_(opened->use_direct_io()),
      direct_unit_(DirectUnit(file_.get(), opened->GetRequiredBufferAlignment())),
      charged_(Charged(file_.get())),
      syncs_name_(IsLog(path)),
      writing_(opened.get()),
      current_(std::move(opened)),
      len_(len) {}

template <typename Attempt>
rocksdb::IOStatus TieredWritableFile::Write(Attempt attempt) {
  for (;;) {
    if (!lost_.ok()) return lost_;
    const IOStatus status = attempt(*writing_);
    if (!IsFull(status, options_) || !GoOnElsewhere(nullptr)) return status;
  }
}

rocksdb::IOStatus TieredWritableFile::Append(const Slice& data, const IOOptions& options,
                                             Context* dbg) {
  const Charge charge(charged_, THERMOCLINE_USE_WRITE, len_, data.size());
  const IOStatus status =
      Write([&](Host& file) { return file.Append(data, options, dbg); });
  if (status.ok()) len_ += data.size();
  return status;
}

rocksdb::IOStatus TieredWritableFile::Append(const Slice& data, const IOOptions& options,
                                             const Verification& sum, Context* dbg) {
  const Charge charge(charged_, THERMOCLINE_USE_WRITE, len_, data.size());
  const IOStatus status =
      Write([&](Host& file) { return file.Append(data, options, sum, dbg); });
  if (status.ok()) len_ += data.size();
  return status;
}

rocksdb::IOStatus TieredWritableFile::PositionedAppend(const Slice& data, uint64_t offset,
                                                       const IOOptions& options, Context* dbg) {
  const Charge charge(charged_, THERMOCLINE_USE_WRITE, offset, data.size());
  const IOStatus status = Write(
      [&](Host& file) { return file.PositionedAppend(data, offset, options, dbg); });
  if (status.ok()) len_ = std::max<uint64_t>(len_, offset + data.size());
  return status;
}

rocksdb::IOStatus TieredWritableFile::PositionedAppend(const Slice& data, uint64_t offset,
                                                       const IOOptions& options,
                                                       const Verification& sum, Context* dbg) {
  const Charge charge(charged_, THERMOCLINE_USE_WRITE, offset, data.size());
  const IOStatus status = Write(
      [&](Host& file) { return file.PositionedAppend(data, offset, options, sum, dbg); });
  if (status.ok()) len_ = std::max<uint64_t>(len_, offset + data.size());
  return status;
}

bool TieredWritableFile::GoOnElsewhere(Context* dbg) {
  if (!ContinueElsewhere(file_.get(), len_).IsOk()) return false;
  went_elsewhere_ = true;
  std::unique_ptr<Host> opened;
  lost_ = OpenNewPlace(&opened, dbg);
  if (!lost_.ok()) return true;
  opened->SetWriteLifeTimeHint(writing_->GetWriteLifeTimeHint());
  opened->SetIOPriority(GetIOPriority());
  writing_ = opened.get();
  // A sync under way may still use the file before the last one.
  while (!current_.Replace(&opened)) std::this_thread::yield();
  return true;
}

// Direct writes have offsets, which a file opened for appending would not heed; other writes go to
// the end, and not through a mapping, whose host class begins at the front.
rocksdb::IOStatus TieredWritableFile::OpenNewPlace(std::unique_ptr<Host>* opened, Context* dbg) {
  uint64_t epoch = 0;
  rocksdb::FileOptions options = options_;
  options.use_mmap_writes = false;
  return OpenAtPlace(file_.get(), Access::kWrite, &epoch, [&](const std::string& place) {
    if (use_direct_io()) return host_->ReuseWritableFile(place, place, options, opened, dbg);
    return host_->ReopenWritableFile(place, options, opened, dbg);
  });
}

rocksdb::IOStatus TieredWritableFile::Synced(IOStatus synced) {
  if (!synced.ok() || !syncs_name_) return synced;
  return ToIOStatus(thermocline::Synced(file_.get()));
}

rocksdb::IOStatus TieredWritableFile::Sync(const IOOptions& options, Context* dbg) {
  const Charge charge(charged_, THERMOCLINE_USE_SYNC, 0, 0);
  return Synced(current_.Now()->Sync(options, dbg));
}

rocksdb::IOStatus TieredWritableFile::Fsync(const IOOptions& options, Context* dbg) {
  const Charge charge(charged_, THERMOCLINE_USE_SYNC, 0, 0);
  return Synced(current_.Now()->Fsync(options, dbg));
}

rocksdb::IOStatus TieredWritableFile::Truncate(uint64_t size, const IOOptions& options,
                                               Context* dbg) {
  if (!lost_.ok()) return lost_;
  const IOStatus status = writing_->Truncate(size, options, dbg);
  if (status.ok()) len_ = size;
  return status;
}

rocksdb::IOStatus TieredWritableFile::Close(const IOOptions& options, Context* dbg) {
  const IOStatus status = writing_->Close(options, dbg);
  if (status.ok()) {
    charged_ = nullptr;
    file_.reset();
  }
  return lost_.ok() ? status : lost_;
}

rocksdb::IOStatus TieredWritableFile::Flush(const IOOptions& options, Context* dbg) {
  return Write([&](Host& file) { return file.Flush(options, dbg); });
}

// It starts writing back and waits for nothing, so that it makes no name durable.
rocksdb::IOStatus TieredWritableFile::RangeSync(uint64_t offset, uint64_t nbytes,
                                                const IOOptions& options, Context* dbg) {
  return writing_->RangeSync(offset, nbytes, options, dbg);
}

rocksdb::IOStatus TieredWritableFile::InvalidateCache(size_t offset, size_t length) {
  return writing_->InvalidateCache(offset, length);
}

// A file that went on elsewhere allocates nothing ahead: its host class would cut what it
// allocated off by a length that it does not know.
rocksdb::IOStatus TieredWritableFile::Allocate(uint64_t offset, uint64_t len,
                                               const IOOptions& options, Context* dbg) {
  if (went_elsewhere_) return IOStatus::OK();
  return writing_->Allocate(offset, len, options, dbg);
}

void TieredWritableFile::PrepareWrite(size_t offset, size_t len, const IOOptions& options,
                                      Context* dbg) {
  if (!went_elsewhere_) writing_->PrepareWrite(offset, len, options, dbg);
}

void TieredWritableFile::SetPreallocationBlockSize(size_t size) {
  if (!went_elsewhere_) writing_->SetPreallocationBlockSize(size);
}

void TieredWritableFile::GetPreallocationStatus(size_t* block_size, size_t* last_allocated_block) {
  writing_->GetPreallocationStatus(block_size, last_allocated_block);
}

void TieredWritableFile::SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) {
  writing_->SetWriteLifeTimeHint(hint);
}

Env::WriteLifeTimeHint TieredWritableFile::GetWriteLifeTimeHint() {
  return writing_->GetWriteLifeTimeHint();
}

// The priority is kept here as well: the host asks for it several times at each write.
void TieredWritableFile::SetIOPriority(Env::IOPriority priority) {
  FSWritableFile::SetIOPriority(priority);
  writing_->SetIOPriority(priority);
}

uint64_t TieredWritableFile::GetFileSize(const IOOptions& options, Context* dbg) {
  return went_elsewhere_ ? len_ : writing_->GetFileSize(options, dbg);
}

size_t TieredWritableFile::GetUniqueId(char* id, size_t max_size) const {
  return current_.Now()->GetUniqueId(id, max_size);
}

bool TieredWritableFile::IsSyncThreadSafe() const { return current_.Now()->IsSyncThreadSafe(); }

bool TieredWritableFile::use_direct_io() const { return is_direct_; }

size_t TieredWritableFile::GetRequiredBufferAlignment() const {
  return direct_unit_;
}

}  // namespace thermocline
