// What a MANIFEST says about the levels of its directory's tables, told to the tiers.
//
// 1. What comes of the bytes changes no answer to the host.
// 2. Of a MANIFEST that is read counts what it says at its end: most of its tables are long gone.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "../taps/manifest.h"
#include "tiers.h"

namespace thermocline {

class ManifestLevels {
 public:
  ManifestLevels(std::shared_ptr<Tiers> tiers, const std::string& manifest);
  ~ManifestLevels();
  ManifestLevels(const ManifestLevels&) = delete;
  ManifestLevels& operator=(const ManifestLevels&) = delete;

  // The host has appended these bytes.
  void Written(const char* bytes, size_t len);
  // The host has read these bytes, which follow those before.
  void Read(const char* bytes, size_t len);

 private:
  void Tell(uint64_t table, int level) const;

  const std::shared_ptr<Tiers> tiers_;
  const std::string directory_;
  ManifestTap tap_;
  std::unordered_map<uint64_t, int> read_;
};

}  // namespace thermocline
