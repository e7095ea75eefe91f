// What a line of LevelDB's log of information says about the thread that writes it, as log_lines.h
// has it for RocksDB. LevelDB has no listener.
//
// 1. Pure: bytes in, a change out. Any bytes are taken.
// 2. A memtable is written out in the midst of a compaction, by the same thread: the end of the
//    flush is not that of the compaction. `origin` says which one ends.
//
// Threads: any.
#pragma once

#include <cstddef>

#include "log_lines.h"

namespace thermocline {

LineSays ReadLevelDbLine(const char* text, size_t len);

}  // namespace thermocline
