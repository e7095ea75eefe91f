// What a line of a host's information log says about the thread that writes it: which job begins
// or ends there, and to which level its tables go (Keigo, section 4.1: the level is the context).
//
// The host names the level nowhere else before it creates a table, unless it has a listener.
//
// 1. Pure: bytes in, a change out. Any bytes are taken; a line that is not understood changes
//    nothing.
// 2. Only what RocksDB, Speedb and LevelDB print in all versions is looked for, not a whole line.
//
// Threads: any.
#pragma once

#include <cstddef>

namespace thermocline {

// Why the tables of a job are made: the numbers of THERMOCLINE_ORIGIN_*.
enum class Origin { kForeground = 0, kFlush = 1, kCompaction = 2, kIngest = 3, kRecovery = 4 };

constexpr int kLevelUnknown = -1;
// Deeper levels than any host has.
constexpr int kLevelMax = 62;

struct LineSays {
  enum class What { kNothing, kJobBegins, kJobEnds };
  What what = What::kNothing;
  int level = kLevelUnknown;
  Origin origin = Origin::kForeground;
};

LineSays ReadLogLine(const char* text, size_t len);

}  // namespace thermocline
