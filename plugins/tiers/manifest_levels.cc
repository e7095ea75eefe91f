// See manifest_levels.h.
#include "manifest_levels.h"

#include <cinttypes>
#include <cstdio>
#include <utility>
#include <vector>

#include "../taps/log_lines.h"
#include "paths.h"

namespace thermocline {

namespace {

// RocksDB's tables and those of LevelDB before 1.14; LevelDB's.
constexpr const char* kExtensions[] = {"sst", "ldb"};

}  // namespace

ManifestLevels::ManifestLevels(std::shared_ptr<Tiers> tiers, const std::string& manifest)
    : tiers_(std::move(tiers)), directory_(DirectoryOf(manifest)) {}

ManifestLevels::~ManifestLevels() {
  for (const auto& [table, level] : read_) Tell(table, level);
}

void ManifestLevels::Written(const char* bytes, size_t len) {
  std::vector<TableLevel> tables;
  tap_.Feed(bytes, len, &tables);
  for (const TableLevel& table : tables) {
    if (table.level != kLevelUnknown) Tell(table.number, table.level);
  }
}

void ManifestLevels::Read(const char* bytes, size_t len) {
  std::vector<TableLevel> tables;
  tap_.Feed(bytes, len, &tables);
  for (const TableLevel& table : tables) {
    if (table.level == kLevelUnknown) {
      read_.erase(table.number);
    } else {
      read_[table.number] = table.level;
    }
  }
}

// A name that is not there is OK. A table in another directory (db_paths) keeps the level that it
// was made with.
void ManifestLevels::Tell(uint64_t table, int level) const {
  for (const char* extension : kExtensions) {
    char name[32];
    std::snprintf(name, sizeof(name), "/%06" PRIu64 ".%s", table, extension);
    tiers_->SetLevel(directory_ + name, level);
  }
}

}  // namespace thermocline
