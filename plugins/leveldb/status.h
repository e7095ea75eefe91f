// Answers of Thermocline's C interface as LevelDB's, and opening a managed file where it lies while
// it may be moved.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "../tiers/tiers.h"
#include "leveldb/status.h"

namespace thermocline::of_leveldb {

// It keeps the answer's text.
leveldb::Status ToStatus(const Answer& answer);

// LevelDB has no code for a full device, only the text.
bool IsFull(const leveldb::Status& status);

// Opens the place by `open`, again where the file was moved meanwhile, or its copy went. `epoch` is
// at most that of the place which was opened.
template <typename Opener>
leveldb::Status OpenAtPlace(const thermocline_file* file, Access access, uint64_t* epoch,
                            Opener open) {
  for (;;) {
    *epoch = thermocline_file_epoch(file);
    std::string place;
    const Answer answer = PlaceOf(file, access, &place);
    if (!answer.IsOk()) return ToStatus(answer);
    leveldb::Status status = open(place);
    if (!status.IsNotFound() || thermocline_file_epoch(file) == *epoch) return status;
  }
}

}  // namespace thermocline::of_leveldb
