// See files.h.
#include "files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "../tiers/charge.h"
#include "../tiers/extents.h"
#include "status.h"

namespace thermocline::of_leveldb {

using leveldb::Slice;
using leveldb::Status;

namespace {

// As much as the host's class holds back.
constexpr size_t kBufferBytes = 65536;

}  // namespace

TieredWritableFile::TieredWritableFile(leveldb::Env* host, OpenFile file, uint64_t len,
                                       std::unique_ptr<leveldb::WritableFile> opened)
    : host_(host),
      file_(std::move(file)),
      charged_(Charged(file_.get())),
      opened_(std::move(opened)),
      len_(len) {}

// As the host's class does, which has nothing to answer then.
TieredWritableFile::~TieredWritableFile() {
  if (opened_ != nullptr) PassOn();
}

Status TieredWritableFile::PassOn() {
  while (failed_.ok() && !buffer_.empty()) {
    const Charge charge(charged_, THERMOCLINE_USE_WRITE, len_, buffer_.size());
    Status status = opened_->Append(buffer_);
    if (status.ok()) status = opened_->Flush();
    if (status.ok()) {
      len_ += buffer_.size();
      buffer_.clear();
    } else if (!IsFull(status) || !GoOnElsewhere()) {
      failed_ = status;
    }
  }
  return failed_;
}

bool TieredWritableFile::GoOnElsewhere() {
  if (!ContinueElsewhere(file_.get(), len_).IsOk()) return false;
  uint64_t epoch = 0;
  leveldb::WritableFile* opened = nullptr;
  failed_ = OpenAtPlace(file_.get(), Access::kWrite, &epoch, [&](const std::string& place) {
    return host_->NewAppendableFile(place, &opened);
  });
  if (failed_.ok()) opened_.reset(opened);
  return true;
}

Status TieredWritableFile::Append(const Slice& data) {
  if (!failed_.ok()) return failed_;
  buffer_.append(data.data(), data.size());
  return buffer_.size() < kBufferBytes ? Status::OK() : PassOn();
}

Status TieredWritableFile::Flush() { return PassOn(); }

Status TieredWritableFile::Sync() {
  const Status passed = PassOn();
  if (!passed.ok()) return passed;
  const Charge charge(charged_, THERMOCLINE_USE_SYNC, 0, 0);
  failed_ = opened_->Sync();
  if (failed_.ok()) failed_ = ToStatus(Synced(file_.get()));
  return failed_;
}

Status TieredWritableFile::Close() {
  if (opened_ == nullptr) return failed_;
  Status status = PassOn();
  const Status closed = opened_->Close();
  if (status.ok()) status = closed;
  opened_.reset();
  charged_ = nullptr;
  file_.reset();
  return status;
}

Status MappedFile::Open(const std::shared_ptr<Tiers>& tiers, OpenFile* file,
                        leveldb::RandomAccessFile** result) {
  uint64_t epoch = 0;
  std::unique_ptr<Mapping> mapping;
  const Status status = OpenAtPlace(file->get(), Access::kRead, &epoch, [&](const auto& place) {
    int error = 0;
    mapping = Mapping::Of(place, &error);
    // Other errors are told by the host's class, which opens the file then.
    return error == ENOENT ? Status::NotFound(place, std::strerror(error)) : Status::OK();
  });
  if (mapping != nullptr) {
    *result = new MappedFile(tiers, std::move(*file), epoch, std::move(mapping));
  }
  return status;
}

MappedFile::MappedFile(std::shared_ptr<Tiers> tiers, OpenFile file, uint64_t epoch,
                       std::unique_ptr<Mapping> mapping)
    : tiers_(std::move(tiers)),
      file_(std::move(file)),
      by_extents_(thermocline_file_keeps_extents(file_.get())),
      charged_(Charged(file_.get())),
      reads_(file_.get()),
      mapping_(std::move(mapping)),
      epoch_(epoch),
      known_(tiers_->readers(), this) {}

void MappedFile::FollowIfMoved() const {
  if (reads_.Epoch() != epoch_.load(std::memory_order_relaxed)) Follow();
}

void MappedFile::TellReads() const { reads_.Tell(); }

void MappedFile::Follow() const {
  const std::unique_lock<std::mutex> following(following_, std::try_to_lock);
  if (!following.owns_lock()) return;
  uint64_t epoch = 0;
  const Status status = OpenAtPlace(file_.get(), Access::kRead, &epoch, [&](const auto& place) {
    const int error = mapping_->MoveTo(place);
    if (error == 0) return Status::OK();
    return error == ENOENT ? Status::NotFound(place, std::strerror(error))
                           : Status::IOError(place, std::strerror(error));
  });
  // Otherwise the bytes at the place before go on being read, and the next read tries again.
  if (status.ok()) epoch_.store(epoch);
}

Status MappedFile::Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  reads_.Add(ProcessorPart());
  FollowIfMoved();
  *result = Slice();
  if (offset > mapping_->len() || n > mapping_->len() - offset) {
    return Status::IOError("a read beyond the end of a table", std::strerror(EINVAL));
  }
  const auto read = [&](uint64_t at, size_t len, char*, const char** got, size_t* got_len) {
    const Charge charge(charged_, THERMOCLINE_USE_READ, at, len);
    *got = mapping_->bytes() + at;
    *got_len = std::min(len, mapping_->len() - at);
    return true;
  };
  size_t got = 0;
  if (by_extents_ &&
      ReadByExtents(file_.get(), epoch_.load(), offset, n, scratch, 1, read, &got)) {
    *result = Slice(scratch, got);
    return Status::OK();
  }
  const Charge charge(charged_, THERMOCLINE_USE_READ, offset, n);
  *result = Slice(mapping_->bytes() + offset, n);
  return Status::OK();
}

Status TieredRandomAccessFile::Open(leveldb::Env* host, std::shared_ptr<Tiers> tiers, OpenFile file,
                                    leveldb::RandomAccessFile** result) {
  uint64_t epoch = 0;
  Host* opened = nullptr;
  const Status status =
      OpenAtPlace(file.get(), Access::kRead, &epoch, [&](const std::string& place) {
        return host->NewRandomAccessFile(place, &opened);
      });
  if (status.ok()) {
    std::unique_ptr<Host> owned(opened);
    *result = new TieredRandomAccessFile(host, std::move(tiers), std::move(file), epoch,
                                         std::move(owned));
  }
  return status;
}

TieredRandomAccessFile::TieredRandomAccessFile(leveldb::Env* host, std::shared_ptr<Tiers> tiers,
                                               OpenFile file, uint64_t epoch,
                                               std::unique_ptr<Host> opened)
    : host_(host),
      tiers_(std::move(tiers)),
      file_(std::move(file)),
      by_extents_(thermocline_file_keeps_extents(file_.get())),
      charged_(Charged(file_.get())),
      reads_(file_.get()),
      current_(std::move(opened)),
      epoch_(epoch),
      known_(tiers_->readers(), this) {}

void TieredRandomAccessFile::FollowIfMoved() const {
  if (reads_.Epoch() != epoch_.load(std::memory_order_relaxed)) Follow();
}

void TieredRandomAccessFile::TellReads() const { reads_.Tell(); }

void TieredRandomAccessFile::Follow() const {
  const std::unique_lock<std::mutex> following(following_, std::try_to_lock);
  if (!following.owns_lock() || !current_.CanReplace()) return;
  uint64_t epoch = 0;
  Host* opened = nullptr;
  const Status status =
      OpenAtPlace(file_.get(), Access::kRead, &epoch, [&](const std::string& place) {
        return host_->NewRandomAccessFile(place, &opened);
      });
  if (!status.ok()) return;
  std::unique_ptr<Host> next(opened);
  if (current_.Replace(&next)) epoch_.store(epoch);
}

Status TieredRandomAccessFile::Read(uint64_t offset, size_t n, Slice* result,
                                    char* scratch) const {
  FollowIfMoved();
  const uint64_t epoch = epoch_.load();
  const auto now = current_.Now();
  reads_.Add(now.part());
  const auto read = [&](uint64_t at, size_t len, char* to, const char** got, size_t* got_len) {
    Slice bytes;
    const Charge charge(charged_, THERMOCLINE_USE_READ, at, len);
    const Status status = now->Read(at, len, &bytes, to);
    *got = bytes.data();
    *got_len = bytes.size();
    return status.ok();
  };
  size_t got = 0;
  if (by_extents_ && ReadByExtents(file_.get(), epoch, offset, n, scratch, 1, read, &got)) {
    *result = Slice(scratch, got);
    return Status::OK();
  }
  const Charge charge(charged_, THERMOCLINE_USE_READ, offset, n);
  const Status status = now->Read(offset, n, result, scratch);
  if (!status.ok() || result->data() == scratch) return status;
  std::memcpy(scratch, result->data(), result->size());
  *result = Slice(scratch, result->size());
  return status;
}

TappedManifestWriter::TappedManifestWriter(std::shared_ptr<Tiers> tiers, const std::string& path,
                                           std::unique_ptr<leveldb::WritableFile> file)
    : file_(std::move(file)), levels_(std::move(tiers), path) {}

Status TappedManifestWriter::Append(const Slice& data) {
  const Status status = file_->Append(data);
  if (status.ok()) levels_.Written(data.data(), data.size());
  return status;
}

Status TappedManifestWriter::Close() { return file_->Close(); }

Status TappedManifestWriter::Flush() { return file_->Flush(); }

Status TappedManifestWriter::Sync() { return file_->Sync(); }

TappedManifestReader::TappedManifestReader(std::shared_ptr<Tiers> tiers, const std::string& path,
                                           std::unique_ptr<leveldb::SequentialFile> file)
    : file_(std::move(file)), levels_(std::move(tiers), path) {}

Status TappedManifestReader::Read(size_t n, Slice* result, char* scratch) {
  const Status status = file_->Read(n, result, scratch);
  if (status.ok()) levels_.Read(result->data(), result->size());
  return status;
}

Status TappedManifestReader::Skip(uint64_t n) { return file_->Skip(n); }

}  // namespace thermocline::of_leveldb
