// Opening a managed file where it lies while it may be moved.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../tiers/paths.h"
#include "../tiers/tiers.h"
#include "rocksdb/file_system.h"
#include "status.h"

namespace thermocline {

inline bool IsMissing(const rocksdb::IOStatus& status) {
  return status.IsNotFound() || status.IsPathNotFound();
}

// Opens the place by `open`, again where the file was moved meanwhile, or its copy went. `epoch` is
// at most that of the place which was opened.
template <typename Opener>
rocksdb::IOStatus OpenAtPlace(const thermocline_file* file, Access access, uint64_t* epoch,
                              Opener open) {
  for (;;) {
    *epoch = thermocline_file_epoch(file);
    std::string place;
    const Answer answer = PlaceOf(file, access, &place);
    if (!answer.IsOk()) return ToIOStatus(answer);
    rocksdb::IOStatus status = open(place);
    if (!IsMissing(status) || thermocline_file_epoch(file) == *epoch) return status;
  }
}

// Direct I/O that suits each tier's device, since the host's buffers outlive a move. `of_host` is
// what the host's file says where it is now.
inline size_t DirectUnit(const thermocline_file* file, size_t of_host) {
  return std::max(of_host, thermocline_file_direct_unit(file));
}

}  // namespace thermocline
