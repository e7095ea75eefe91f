// See manifest_files.h.
#include "manifest_files.h"

#include <utility>

namespace thermocline {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

TappedManifestWriter::TappedManifestWriter(std::shared_ptr<Tiers> tiers, const std::string& path,
                                           std::unique_ptr<rocksdb::FSWritableFile> file)
    : FSWritableFileOwnerWrapper(std::move(file)), levels_(std::move(tiers), path) {}

IOStatus TappedManifestWriter::Append(const Slice& data, const IOOptions& options,
                                      IODebugContext* dbg) {
  const IOStatus status = target()->Append(data, options, dbg);
  if (status.ok()) levels_.Written(data.data(), data.size());
  return status;
}

IOStatus TappedManifestWriter::Append(const Slice& data, const IOOptions& options,
                                      const rocksdb::DataVerificationInfo& sum,
                                      IODebugContext* dbg) {
  const IOStatus status = target()->Append(data, options, sum, dbg);
  if (status.ok()) levels_.Written(data.data(), data.size());
  return status;
}

TappedManifestReader::TappedManifestReader(std::shared_ptr<Tiers> tiers, const std::string& path,
                                           std::unique_ptr<rocksdb::FSSequentialFile> file)
    : FSSequentialFileOwnerWrapper(std::move(file)), levels_(std::move(tiers), path) {}

IOStatus TappedManifestReader::Read(size_t n, const IOOptions& options, Slice* result,
                                    char* scratch, IODebugContext* dbg) {
  const IOStatus status = target()->Read(n, options, result, scratch, dbg);
  if (status.ok()) levels_.Read(result->data(), result->size());
  return status;
}

}  // namespace thermocline
