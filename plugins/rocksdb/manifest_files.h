// A MANIFEST that is written or read: the host's own file, whose bytes the tap sees on their way.
//
// 1. What the tap makes of the bytes changes no answer to the host.
// 2. Of a MANIFEST that is read counts what it says at its end: most of its tables are long gone.
//
// Threads: as the host's classes, one at a time.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "../taps/manifest.h"
#include "rocksdb/file_system.h"
#include "tiers.h"

namespace thermocline {

bool IsManifest(const std::string& path);

class TappedManifestWriter : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  TappedManifestWriter(std::shared_ptr<Tiers> tiers, const std::string& path,
                       std::unique_ptr<rocksdb::FSWritableFile> file);

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& sum,
                           rocksdb::IODebugContext* dbg) override;

 private:
  void Saw(const rocksdb::Slice& data);

  const std::shared_ptr<Tiers> tiers_;
  const std::string directory_;
  ManifestTap tap_;
};

class TappedManifestReader : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  TappedManifestReader(std::shared_ptr<Tiers> tiers, const std::string& path,
                       std::unique_ptr<rocksdb::FSSequentialFile> file);
  ~TappedManifestReader() override;

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* dbg) override;

 private:
  const std::shared_ptr<Tiers> tiers_;
  const std::string directory_;
  ManifestTap tap_;
  std::unordered_map<uint64_t, int> levels_;
};

}  // namespace thermocline
