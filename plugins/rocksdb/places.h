// Opening a managed file where it lies, while it may be moved.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "rocksdb/file_system.h"
#include "tiers.h"

namespace thermocline {

inline bool IsMissing(const rocksdb::IOStatus& status) {
  return status.IsNotFound() || status.IsPathNotFound();
}

// Opens the place by `open`, again where the file was moved meanwhile. `epoch` is at most that of
// the place which was opened.
template <typename Opener>
rocksdb::IOStatus OpenAtPlace(const thermocline_file* file, uint64_t* epoch, Opener open) {
  for (;;) {
    *epoch = thermocline_file_epoch(file);
    rocksdb::IOStatus status = open(PlaceOf(file));
    if (!IsMissing(status) || thermocline_file_epoch(file) == *epoch) return status;
  }
}

// Direct I/O that suits each tier's device, since the host's buffers outlive a move.
inline size_t TieredAlignment(size_t of_device) { return std::max<size_t>(of_device, 4096); }

}  // namespace thermocline
