// See level_context.h.
#include "level_context.h"

#include "paths.h"

namespace thermocline {
namespace {

thread_local LevelContext context;

constexpr uint64_t kHasJob = uint64_t{1} << 32;

}  // namespace

LevelContext CurrentContext() { return context; }

void BeginJob(int level, Origin origin) { context = {level, origin}; }

void EndJob() { context = {}; }

thermocline_new_file NewFile(const std::string& path, int32_t heat) {
  const bool is_of_job =
      EndsWith(path, ".sst") || EndsWith(path, ".ldb") || EndsWith(path, ".blob");
  const LevelContext job = is_of_job ? context : LevelContext{};
  thermocline_new_file file = {};
  file.size = sizeof(file);
  file.holds = THERMOCLINE_HOLDS_BY_NAME;
  file.level = job.level;
  file.origin = static_cast<int32_t>(job.origin);
  file.heat = heat;
  return file;
}

}  // namespace thermocline

extern "C" uint64_t thermocline_plugin_context() {
  using namespace thermocline;
  if (context.level == kLevelUnknown) return 0;
  return kHasJob | static_cast<uint64_t>(context.level) << 8 |
         static_cast<uint64_t>(context.origin);
}

extern "C" void thermocline_plugin_enter(uint64_t packed) {
  using namespace thermocline;
  if ((packed & kHasJob) == 0) return EndJob();
  BeginJob(static_cast<int>(packed >> 8 & 0xff), static_cast<Origin>(packed & 0xff));
}
