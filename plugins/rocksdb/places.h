// Paths, and opening a managed file where it lies while it may be moved.
//
// Threads: any.
#pragma once

#include <sys/stat.h>

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

inline std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

// A link is a managed file's name: a raw call would reach the link, not the file.
inline bool IsLink(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode);
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
    if (!answer.IsOk()) return answer.ToIOStatus();
    rocksdb::IOStatus status = open(place);
    if (!IsMissing(status) || thermocline_file_epoch(file) == *epoch) return status;
  }
}

// Direct I/O that suits each tier's device, since the host's buffers outlive a move.
inline size_t TieredAlignment(size_t of_device) { return std::max<size_t>(of_device, 4096); }

}  // namespace thermocline
