// See leveldb_lines.h.
#include "leveldb_lines.h"

#include <string_view>

namespace thermocline {
namespace {

bool Take(std::string_view* line, std::string_view mark) {
  if (line->substr(0, mark.size()) != mark) return false;
  line->remove_prefix(mark.size());
  return true;
}

// Takes digits; false where there are none, or more than a number of files or a level has.
bool TakeNumber(std::string_view* line, int* number) {
  size_t digits = 0;
  *number = 0;
  for (; digits < line->size() && (*line)[digits] >= '0' && (*line)[digits] <= '9'; digits++) {
    if (digits == 6) return false;
    *number = *number * 10 + ((*line)[digits] - '0');
  }
  line->remove_prefix(digits);
  return digits > 0;
}

// 4@0 + 1@1 files: the second level is that of the output.
bool TakeInputs(std::string_view line, int* level) {
  int files = 0, from = 0;
  return TakeNumber(&line, &files) && Take(&line, "@") && TakeNumber(&line, &from) &&
         Take(&line, " + ") && TakeNumber(&line, &files) && Take(&line, "@") &&
         TakeNumber(&line, level) && Take(&line, " files") && *level <= kLevelMax;
}

// Level-0 table #9: started
// Level-0 table #9: 1081 bytes OK
LineSays ReadFlush(std::string_view table) {
  const size_t colon = table.find(": ");
  if (colon == std::string_view::npos) return {};
  const bool begins = table.substr(colon + 2) == "started";
  const auto what = begins ? LineSays::What::kJobBegins : LineSays::What::kJobEnds;
  return {what, 0, Origin::kFlush};
}

}  // namespace

// Compacting 4@0 + 1@1 files
// Compacted 4@0 + 1@1 files => 10485760 bytes
LineSays ReadLevelDbLine(const char* text, size_t len) {
  std::string_view line(text, len);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  if (Take(&line, "Level-0 table #")) return ReadFlush(line);
  const bool begins = Take(&line, "Compacting ");
  if (!begins && !Take(&line, "Compacted ")) return {};
  int level = kLevelUnknown;
  if (!TakeInputs(line, &level)) return {};
  const auto what = begins ? LineSays::What::kJobBegins : LineSays::What::kJobEnds;
  return {what, level, Origin::kCompaction};
}

}  // namespace thermocline
