// The job that the present thread works for, so that a table's level is known when it is created.
//
// Three writers: the listener and the tap of log lines set it; the preload shim hands it on to
// threads that a job starts (a compaction's parts run in threads of their own). One reader: the
// creation of a file.
//
// Threads: each has its own.
#pragma once

#include <cstdint>

#include "../taps/log_lines.h"

namespace thermocline {

struct LevelContext {
  int level = kLevelUnknown;
  Origin origin = Origin::kForeground;
};

LevelContext CurrentContext();
void BeginJob(int level, Origin origin);
void EndJob();

}  // namespace thermocline

// For the preload shim. 0 is a thread without a job.
extern "C" uint64_t thermocline_plugin_context();
extern "C" void thermocline_plugin_enter(uint64_t context);
