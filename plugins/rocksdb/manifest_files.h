// A MANIFEST that is written or read: the host's own file, whose bytes the tap sees on their way.
//
// Threads: as the host's classes, one at a time.
#pragma once

#include <memory>
#include <string>

#include "../tiers/manifest_levels.h"
#include "../tiers/tiers.h"
#include "rocksdb/file_system.h"

namespace thermocline {

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
  ManifestLevels levels_;
};

class TappedManifestReader : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  TappedManifestReader(std::shared_ptr<Tiers> tiers, const std::string& path,
                       std::unique_ptr<rocksdb::FSSequentialFile> file);

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* dbg) override;

 private:
  ManifestLevels levels_;
};

}  // namespace thermocline
