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

void AddAll(Charge* charge, const FSReadRequest* requests, size_t count) {
  for (const FSReadRequest* one = requests; one != requests + count; ++one) {
    charge->Add(THERMOCLINE_USE_READ, one->offset, one->len);
  }
}

// The requests of one call that the host has to read, at once. Takes no memory as long as these are
// the requests as they are.
class ReadsByHost {
 public:
  ReadsByHost(FSReadRequest* requests, size_t count) : requests_(requests), count_(count) {}

  // The next request, and what extents say to it.
  void Add(FSReadRequest* one, ExtentsAsked asked) {
    const bool is_served = asked.served >= 0;
    if (!is_split_ && !is_served && asked.memory == nullptr) return;
    if (!is_split_) {
      is_split_ = true;
      of_host_.reserve(count_);
      asked_.reserve(count_);
      for (FSReadRequest* other = requests_; other != one; ++other) AddPlain(other);
    }
    if (is_served) {
      one->result = Slice(one->scratch, static_cast<size_t>(asked.served));
      one->status = IOStatus::OK();
    } else if (asked.memory == nullptr) {
      AddPlain(one);
    } else {
      FSReadRequest longer;
      longer.offset = asked.wanted.offset;
      longer.len = asked.len;
      longer.scratch = asked.memory.get();
      of_host_.push_back(std::move(longer));
      asked_.push_back({one, std::move(asked)});
    }
  }

  bool AreAsTheyWere() const { return !is_split_; }

  IOStatus Run(rocksdb::FSRandomAccessFile& host, const thermocline_file* file,
               const thermocline_file* charged, uint64_t epoch, const IOOptions& options,
               IODebugContext* dbg) {
    if (of_host_.empty()) return IOStatus::OK();
    Charge charge(charged);
    AddAll(&charge, of_host_.data(), of_host_.size());
    const IOStatus status = host.MultiRead(of_host_.data(), of_host_.size(), options, dbg);
    for (size_t at = 0; at < of_host_.size(); ++at) {
      FSReadRequest& read = of_host_[at];
      FSReadRequest& one = *asked_[at].first;
      const ExtentsAsked& asked = asked_[at].second;
      if (asked.memory == nullptr) {
        one = std::move(read);
        continue;
      }
      size_t got = 0;
      const bool is_read = status.ok() && read.status.ok();
      if (is_read && TakeExtents(file, epoch, one.offset, one.len, one.scratch, asked,
                                 read.result.data(), read.result.size(), &got)) {
        one.result = Slice(one.scratch, got);
        one.status = IOStatus::OK();
      } else {
        charge.Add(THERMOCLINE_USE_READ, one.offset, one.len);
        one.status = host.Read(one.offset, one.len, options, &one.result, one.scratch, dbg);
      }
    }
    return status;
  }

 private:
  void AddPlain(FSReadRequest* one) {
    of_host_.push_back(std::move(*one));
    asked_.push_back({one, ExtentsAsked()});
  }

  FSReadRequest* const requests_;
  const size_t count_;
  bool is_split_ = false;
  std::vector<FSReadRequest> of_host_;
  // For which request each of them is, and what it reads besides.
  std::vector<std::pair<FSReadRequest*, ExtentsAsked>> asked_;
};

}  // namespace

IOStatus TieredRandomAccessFile::Open(std::shared_ptr<rocksdb::FileSystem> host,
                                      std::shared_ptr<Tiers> tiers, OpenFile file,
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
    result->reset(new TieredRandomAccessFile(std::move(host), std::move(tiers), std::move(file),
                                             options, epoch, std::move(opened)));
  }
  return status;
}

TieredRandomAccessFile::TieredRandomAccessFile(std::shared_ptr<rocksdb::FileSystem> host,
                                               std::shared_ptr<Tiers> tiers, OpenFile file,
                                               const FileOptions& options, uint64_t epoch,
                                               std::unique_ptr<Host> opened)
    : host_(std::move(host)),
      tiers_(std::move(tiers)),
      file_(std::move(file)),
      options_(options),
      by_extents_(!options.use_mmap_reads && thermocline_file_keeps_extents(file_.get())),
      is_direct_(opened->use_direct_io()),
      direct_unit_(DirectUnit(file_.get(), opened->GetRequiredBufferAlignment())),
      charged_(Charged(file_.get())),
      reads_(file_.get()),
      current_(std::move(opened)),
      epoch_(epoch),
      hint_(kNoHint),
      known_(tiers_->readers(), this) {}

CurrentFile<rocksdb::FSRandomAccessFile>::Use TieredRandomAccessFile::Now() const {
  FollowIfMoved();
  return current_.Now();
}

void TieredRandomAccessFile::FollowIfMoved() const {
  if (reads_.Epoch() != epoch_.load(std::memory_order_relaxed)) Follow();
}

void TieredRandomAccessFile::TellReads() const { reads_.Tell(); }

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

bool TieredRandomAccessFile::ReadExtents(const Host& now, uint64_t epoch, uint64_t offset, size_t n,
                                         const IOOptions& options, Slice* result, char* scratch,
                                         IODebugContext* dbg) const {
  const size_t alignment = is_direct_ ? direct_unit_ : 1;
  const auto read = [&](uint64_t at, size_t len, char* to, const char** got, size_t* got_len) {
    Slice bytes;
    const Charge charge(charged_, THERMOCLINE_USE_READ, at, len);
    const IOStatus status = now.Read(at, len, options, &bytes, to, dbg);
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
  FollowIfMoved();
  // The file that is open now is that of this epoch, or a later one: then nothing is filled in.
  const uint64_t epoch = epoch_.load();
  const auto now = current_.Now();
  reads_.Add(now.part());
  if (by_extents_ && ReadExtents(*now, epoch, offset, n, options, result, scratch, dbg)) {
    return IOStatus::OK();
  }
  const Charge charge(charged_, THERMOCLINE_USE_READ, offset, n);
  return now->Read(offset, n, options, result, scratch, dbg);
}

IOStatus TieredRandomAccessFile::MultiRead(FSReadRequest* requests, size_t count,
                                           const IOOptions& options, IODebugContext* dbg) {
  FollowIfMoved();
  // The file that is open now is that of this epoch, or a later one: then nothing is filled in.
  const uint64_t epoch = epoch_.load();
  const auto now = current_.Now();
  reads_.Add(now.part());
  Charge charge(charged_);
  if (!by_extents_) {
    AddAll(&charge, requests, count);
    return now->MultiRead(requests, count, options, dbg);
  }
  const size_t alignment = is_direct_ ? direct_unit_ : 1;
  ReadsByHost reads(requests, count);
  uint64_t wanted_end = 0;
  for (FSReadRequest* one = requests; one != requests + count; ++one) {
    // Extents that the request before reads already are not read twice.
    const bool is_apart = one->offset >= wanted_end;
    ExtentsAsked asked;
    if (is_apart) {
      asked = AskExtents(file_.get(), epoch, one->offset, one->len, one->scratch, alignment);
    }
    if (asked.memory != nullptr) wanted_end = asked.wanted.offset + asked.len;
    reads.Add(one, std::move(asked));
  }
  if (reads.AreAsTheyWere()) {
    AddAll(&charge, requests, count);
    return now->MultiRead(requests, count, options, dbg);
  }
  return reads.Run(*now, file_.get(), charged_, epoch, options, dbg);
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
  const auto now = Now();
  reads_.Add(now.part());
  return now->ReadAsync(request, options, std::move(done), argument, handle, deleter, dbg);
}

#if ROCKSDB_MAJOR >= 11
bool TieredRandomAccessFile::SubmitReadAsync(FSReadRequest& request, const IOOptions& options,
                                             std::function<void(FSReadRequest&)> done,
                                             IODebugContext* dbg) {
  const auto now = Now();
  reads_.Add(now.part());
  return now->SubmitReadAsync(request, options, std::move(done), dbg);
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

bool TieredRandomAccessFile::use_direct_io() const { return is_direct_; }

size_t TieredRandomAccessFile::GetRequiredBufferAlignment() const {
  return direct_unit_;
}

rocksdb::Temperature TieredRandomAccessFile::GetTemperature() const {
  return current_.Now()->GetTemperature();
}

}  // namespace thermocline
