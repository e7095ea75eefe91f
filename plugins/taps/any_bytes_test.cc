// What may be on a disk or in a log: any bytes are taken, as a MANIFEST, as an edit and as a line.
//
// 1. No byte beyond the input is read: compilers' checks of memory see that.
// 2. A MANIFEST says the same in whatever pieces it comes.
// 3. A level is one that a host has.
//
// `taps_test.cc` calls it with many inputs. It is a target of libFuzzer, too.
//
// Threads: one.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "leveldb_lines.h"
#include "log_lines.h"
#include "manifest.h"

namespace {

using thermocline::LineSays;
using thermocline::ManifestTap;
using thermocline::TableLevel;

void Require(bool holds) {
  if (!holds) std::abort();
}

std::vector<TableLevel> InPieces(const std::string& file, size_t piece) {
  ManifestTap tap;
  std::vector<TableLevel> tables;
  for (size_t at = 0; at < file.size(); at += piece) {
    // A piece of its own, so that a read beyond it is one beyond its memory.
    const std::string bytes = file.substr(at, piece);
    tap.Feed(bytes.data(), bytes.size(), &tables);
  }
  return tables;
}

bool IsLevel(int level) {
  return level >= thermocline::kLevelUnknown && level <= thermocline::kLevelMax;
}

bool IsSame(const std::vector<TableLevel>& one, const std::vector<TableLevel>& other) {
  if (one.size() != other.size()) return false;
  for (size_t at = 0; at < one.size(); ++at) {
    if (one[at].number != other[at].number || one[at].level != other[at].level) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<TableLevel> whole = InPieces(bytes, size + 1);
  const size_t piece = size == 0 ? 1 : 1 + data[0] * size_t{17};
  Require(IsSame(whole, InPieces(bytes, piece)) && IsSame(whole, InPieces(bytes, 1)));
  std::vector<TableLevel> tables = whole;
  thermocline::ReadEdit(bytes, &tables);
  for (const TableLevel& table : tables) Require(IsLevel(table.level));
  for (const LineSays& says : {thermocline::ReadLogLine(bytes.data(), bytes.size()),
                               thermocline::ReadLevelDbLine(bytes.data(), bytes.size())}) {
    Require(IsLevel(says.level));
  }
  return 0;
}
