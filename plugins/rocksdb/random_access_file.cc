// See random_access_file.h.
#include "random_access_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../tiers/charge.h"
#include "../tiers/extents.h"
#include "places.h"

namespace thermocline {

using rocksdb::FileOptions;
using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

constexpr int kNoHint = -1;

}  // namespace

IOStatus TieredRandomAccessFile::Open(std::shared_ptr<rocksdb::FileSystem> host, OpenFile file,
                                      const FileOptions& options,
                                      std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                                      IODebugContext* dbg) {
  uint64_t epoch = 0;
  std::unique_ptr<Host> opened;
  const auto open = [&](const std::string& place) {
    return host->NewRandomAccessFile(place, options, &opened, dbg);
  };
  const IOStatus status = OpenAtPlace(file.get(), Access::kRead, &epoch, open);
  if (status.ok()) {
    result->reset(new TieredRandomAccessFile(std::move(host), std::move(file), options, epoch,
                                             std::move(opened)));
  }
  return status;
}

TieredRandomAccessFile::TieredRandomAccessFile(std::shared_ptr<rocksdb::FileSystem> host,
                                               OpenFile file, const FileOptions& options,
                                               uint64_t epoch, std::unique_ptr<Host> opened)
    : host_(std::move(host)),
      file_(std::move(file)),
      options_(options),
      current_(std::move(opened)),
      epoch_(epoch),
      hint_(kNoHint) {}

CurrentFile<rocksdb::FSRandomAccessFile>::Use TieredRandomAccessFile::Now() const {
  if (thermocline_file_epoch(file_.get()) != epoch_.load(std::memory_order_relaxed)) Follow();
  return current_.Now();
}

void TieredRandomAccessFile::Follow() const {
  if (options_.use_mmap_reads) return;
  const std::unique_lock<std::mutex> following(following_, std::try_to_lock);
  if (!following.owns_lock() || !current_.CanReplace()) return;
  uint64_t epoch = 0;
  std::unique_ptr<Host> opened;
  const auto open = [&](const std::string& place) {
    return host_->NewRandomAccessFile(place, options_, &opened, nullptr);
  };
  const IOStatus status = OpenAtPlace(file_.get(), Access::kRead, &epoch, open);
  if (!status.ok()) return;
  const int hint = hint_.load();
  if (hint != kNoHint) opened->Hint(static_cast<AccessPattern>(hint));
  if (current_.Replace(&opened)) epoch_.store(epoch);
}

bool TieredRandomAccessFile::ReadExtents(uint64_t offset, size_t n, const IOOptions& options,
                                         Slice* result, char* scratch, IODebugContext* dbg) const {
  if (options_.use_mmap_reads) return false;
  // The file that is open now is that of this epoch, or a later one: then nothing is filled in.
  const uint64_t epoch = epoch_.load();
  const auto now = current_.Now();
  const size_t alignment = now->use_direct_io() ? GetRequiredBufferAlignment() : 1;
  const auto read = [&](uint64_t at, size_t len, char* to, const char** got, size_t* got_len) {
    Slice bytes;
    const Charge charge(file_.get(), THERMOCLINE_USE_READ, at, len);
    const IOStatus status = now->Read(at, len, options, &bytes, to, dbg);
    *got = bytes.data();
    *got_len = bytes.size();
    return status.ok();
  };
  size_t got = 0;
  if (!ReadByExtents(file_.get(), epoch, offset, n, scratch, alignment, read, &got)) return false;
  *result = Slice(scratch, got);
  return true;
}

IOStatus TieredRandomAccessFile::Read(uint64_t offset, size_t n, const IOOptions& options,
                                      Slice* result, char* scratch, IODebugContext* dbg) const {
  thermocline_file_was_read(file_.get());
  const auto now = Now();
  if (ReadExtents(offset, n, options, result, scratch, dbg)) return IOStatus::OK();
  const Charge charge(file_.get(), THERMOCLINE_USE_READ, offset, n);
  return now->Read(offset, n, options, result, scratch, dbg);
}

IOStatus TieredRandomAccessFile::MultiRead(FSReadRequest* requests, size_t count,
                                           const IOOptions& options, IODebugContext* dbg) {
  thermocline_file_was_read(file_.get());
  const auto now = Now();
  std::vector<FSReadRequest*> others;
  for (FSReadRequest* one = requests; one != requests + count; ++one) {
    if (!ReadExtents(one->offset, one->len, options, &one->result, one->scratch, dbg)) {
      others.push_back(one);
      continue;
    }
    one->status = IOStatus::OK();
  }
  if (others.empty()) return IOStatus::OK();
  size_t len = 0;
  for (const FSReadRequest* one : others) len += one->len;
  const Charge charge(file_.get(), THERMOCLINE_USE_READ, others.front()->offset, len);
  if (others.size() == count) return now->MultiRead(requests, count, options, dbg);
  std::vector<FSReadRequest> rest(others.size());
  for (size_t i = 0; i < rest.size(); ++i) rest[i] = std::move(*others[i]);
  const IOStatus status = now->MultiRead(rest.data(), rest.size(), options, dbg);
  for (size_t i = 0; i < rest.size(); ++i) *others[i] = std::move(rest[i]);
  return status;
}

IOStatus TieredRandomAccessFile::Prefetch(uint64_t offset, size_t n, const IOOptions& options,
                                          IODebugContext* dbg) {
  return Now()->Prefetch(offset, n, options, dbg);
}

// Once it is submitted, the kernel holds the file: it may be closed before the read is done.
IOStatus TieredRandomAccessFile::ReadAsync(
    FSReadRequest& request, const IOOptions& options,
    std::function<void(ReadDone&, void*)> done, void* argument, void** handle,
    rocksdb::IOHandleDeleter* deleter, IODebugContext* dbg) {
  thermocline_file_was_read(file_.get());
  return Now()->ReadAsync(request, options, std::move(done), argument, handle, deleter, dbg);
}

#if ROCKSDB_MAJOR >= 11
bool TieredRandomAccessFile::SubmitReadAsync(FSReadRequest& request, const IOOptions& options,
                                             std::function<void(FSReadRequest&)> done,
                                             IODebugContext* dbg) {
  thermocline_file_was_read(file_.get());
  return Now()->SubmitReadAsync(request, options, std::move(done), dbg);
}

IOStatus TieredRandomAccessFile::GetFileSize(uint64_t* size) {
  return Now()->GetFileSize(size);
}
#endif

IOStatus TieredRandomAccessFile::InvalidateCache(size_t offset, size_t length) {
  return Now()->InvalidateCache(offset, length);
}

void TieredRandomAccessFile::Hint(AccessPattern pattern) {
  hint_.store(pattern);
  current_.Now()->Hint(pattern);
}

size_t TieredRandomAccessFile::GetUniqueId(char* id, size_t max_size) const {
  return current_.Now()->GetUniqueId(id, max_size);
}

bool TieredRandomAccessFile::use_direct_io() const { return current_.Now()->use_direct_io(); }

size_t TieredRandomAccessFile::GetRequiredBufferAlignment() const {
  return TieredAlignment(current_.Now()->GetRequiredBufferAlignment());
}

rocksdb::Temperature TieredRandomAccessFile::GetTemperature() const {
  return current_.Now()->GetTemperature();
}

}  // namespace thermocline
