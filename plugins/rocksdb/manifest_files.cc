// See manifest_files.h.
#include "manifest_files.h"

#include <cinttypes>
#include <cstdio>
#include <utility>
#include <vector>

#include "../taps/log_lines.h"
#include "places.h"

namespace thermocline {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

// A table in another directory (db_paths) is not found, and keeps the level it was made with.
void SetLevel(const Tiers& tiers, const std::string& directory, uint64_t number, int level) {
  char name[32];
  std::snprintf(name, sizeof(name), "/%06" PRIu64 ".sst", number);
  const std::string path = directory + name;
  char* why = nullptr;
  thermocline_tiers_set_level(tiers.get(), path.c_str(), level, &why);
  thermocline_free(why);
}

}  // namespace

bool IsManifest(const std::string& path) {
  const size_t slash = path.rfind('/');
  return path.compare(slash == std::string::npos ? 0 : slash + 1, 9, "MANIFEST-") == 0;
}

TappedManifestWriter::TappedManifestWriter(std::shared_ptr<Tiers> tiers, const std::string& path,
                                           std::unique_ptr<rocksdb::FSWritableFile> file)
    : FSWritableFileOwnerWrapper(std::move(file)),
      tiers_(std::move(tiers)),
      directory_(DirectoryOf(path)) {}

IOStatus TappedManifestWriter::Append(const Slice& data, const IOOptions& options,
                                      IODebugContext* dbg) {
  const IOStatus status = target()->Append(data, options, dbg);
  if (status.ok()) Saw(data);
  return status;
}

IOStatus TappedManifestWriter::Append(const Slice& data, const IOOptions& options,
                                      const rocksdb::DataVerificationInfo& sum,
                                      IODebugContext* dbg) {
  const IOStatus status = target()->Append(data, options, sum, dbg);
  if (status.ok()) Saw(data);
  return status;
}

void TappedManifestWriter::Saw(const Slice& data) {
  std::vector<TableLevel> tables;
  tap_.Feed(data.data(), data.size(), &tables);
  for (const TableLevel& table : tables) {
    if (table.level != kLevelUnknown) SetLevel(*tiers_, directory_, table.number, table.level);
  }
}

TappedManifestReader::TappedManifestReader(std::shared_ptr<Tiers> tiers, const std::string& path,
                                           std::unique_ptr<rocksdb::FSSequentialFile> file)
    : FSSequentialFileOwnerWrapper(std::move(file)),
      tiers_(std::move(tiers)),
      directory_(DirectoryOf(path)) {}

TappedManifestReader::~TappedManifestReader() {
  for (const auto& [number, level] : levels_) SetLevel(*tiers_, directory_, number, level);
}

IOStatus TappedManifestReader::Read(size_t n, const IOOptions& options, Slice* result,
                                    char* scratch, IODebugContext* dbg) {
  const IOStatus status = target()->Read(n, options, result, scratch, dbg);
  if (!status.ok()) return status;
  std::vector<TableLevel> tables;
  tap_.Feed(result->data(), result->size(), &tables);
  for (const TableLevel& table : tables) {
    if (table.level == kLevelUnknown) {
      levels_.erase(table.number);
    } else {
      levels_[table.number] = table.level;
    }
  }
  return status;
}

}  // namespace thermocline
