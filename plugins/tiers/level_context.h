// The job that the present thread works for, so that a table's level is known when it is created.
//
// Three writers: the listener and the tap of log lines set it; the preload shim hands it on to
// threads that a job starts (a compaction's parts run in threads of their own). One reader: the
// creation of a file.
//
// Threads: each has its own.
#pragma once

#include <thermocline_tiers.h>

#include <cstdint>
#include <string>

#include "../taps/log_lines.h"

namespace thermocline {

struct LevelContext {
  int level = kLevelUnknown;
  Origin origin = Origin::kForeground;
};

LevelContext CurrentContext();
void BeginJob(int level, Origin origin);
void EndJob();

// What a file is that this thread makes at `path`. A log is no part of the job in whose thread the
// host happens to make it. `heat` is one of THERMOCLINE_HEAT_*.
thermocline_new_file NewFile(const std::string& path, int32_t heat);

}  // namespace thermocline

// For the preload shim. 0 is a thread without a job.
extern "C" uint64_t thermocline_plugin_context();
extern "C" void thermocline_plugin_enter(uint64_t context);
