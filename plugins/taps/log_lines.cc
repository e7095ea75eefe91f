// See log_lines.h.
#include "log_lines.h"

#include <string_view>

namespace thermocline {
namespace {

constexpr std::string_view kNone;

// What follows the first `mark` in `line`; nothing where it is not there.
std::string_view After(std::string_view line, std::string_view mark) {
  const size_t at = line.find(mark);
  return at == std::string_view::npos ? kNone : line.substr(at + mark.size());
}

bool Has(std::string_view line, std::string_view mark) {
  return line.find(mark) != std::string_view::npos;
}

// The number at the beginning of `text`, or kLevelUnknown.
int Level(std::string_view text) {
  int level = kLevelUnknown;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') break;
    level = (level == kLevelUnknown ? 0 : level * 10) + (digit - '0');
    if (level > kLevelMax) return kLevelUnknown;
  }
  return level;
}

LineSays Begins(int level, Origin origin) {
  return {LineSays::What::kJobBegins, level, origin};
}

// {"time_micros": 1, "job": 2, "event": "flush_started", ...}
LineSays ReadEvent(std::string_view event) {
  if (Has(event, "\"event\": \"flush_started\"")) return Begins(0, Origin::kFlush);
  if (Has(event, "\"event\": \"flush_finished\"")) return {LineSays::What::kJobEnds};
  if (Has(event, "\"event\": \"compaction_finished\"")) return {LineSays::What::kJobEnds};
  return {};
}

// [default] [JOB 4] Compacting 4@0 + 1@1 files to L1, score 1.00
LineSays ReadCompacting(std::string_view summary) {
  const int level = Level(After(summary, " files to L"));
  return level == kLevelUnknown ? LineSays{} : Begins(level, Origin::kCompaction);
}

// [default] [WriteLevel0TableForRecovery] Level-0 table #9: started
LineSays ReadRecovery(std::string_view table) {
  if (Has(table, ": started")) return Begins(0, Origin::kRecovery);
  return Has(table, " bytes ") ? LineSays{LineSays::What::kJobEnds} : LineSays{};
}

}  // namespace

LineSays ReadLogLine(const char* text, size_t len) {
  const std::string_view line(text, len);
  if (Has(line, "EVENT_LOG_v1 ")) return ReadEvent(line);
  if (Has(line, "[WriteLevel0TableForRecovery] ")) return ReadRecovery(line);
  const std::string_view summary = After(line, "Compacting ");
  return summary.empty() ? LineSays{} : ReadCompacting(summary);
}

}  // namespace thermocline
