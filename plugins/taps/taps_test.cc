// Tests of the taps: each row is what a host writes and what is to be seen in it. No host is
// needed: `cargo xtask plugins test` compiles and runs this first.
//
// Exit status 0 when all rows passed; the first line that failed is printed otherwise. Any bytes are
// tried by any_bytes_test.cc, which ends the program where something is wrong.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "leveldb_lines.h"
#include "log_lines.h"
#include "manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using thermocline::LineSays;
using thermocline::ManifestTap;
using thermocline::Origin;
using thermocline::ReadEdit;
using thermocline::ReadLevelDbLine;
using thermocline::ReadLogLine;
using thermocline::TableLevel;

[[noreturn]] void Fail(const std::string& what, const std::string& found) {
  std::fprintf(stderr, "taps_test: %s: found \"%s\"\n", what.c_str(), found.c_str());
  std::exit(1);
}

void Expect(const std::string& what, const std::string& found, const std::string& expected) {
  if (found != expected) Fail(what + ": expected \"" + expected + "\"", found);
}

// "nothing", "ends", "begins LEVEL ORIGIN".
std::string Text(const LineSays& says) {
  if (says.what == LineSays::What::kNothing) return "nothing";
  if (says.what == LineSays::What::kJobEnds) return "ends";
  return "begins " + std::to_string(says.level) + " " +
         std::to_string(static_cast<int>(says.origin));
}

// "12@1 13@-", "-" where the table left its level.
std::string Text(const std::vector<TableLevel>& tables) {
  std::string text;
  for (const TableLevel& table : tables) {
    if (!text.empty()) text += " ";
    text += std::to_string(table.number) + "@";
    text += table.level < 0 ? "-" : std::to_string(table.level);
  }
  return text;
}

void LinesSayWhichJobBeginsAndEnds() {
  struct Row {
    const char* line;
    const char* says;
  };
  const Row rows[] = {
      {"[default] [JOB 4] Compacting 4@0 + 1@1 files to L1, score 1.00", "begins 1 2"},
      {"[/compaction/compaction_job.cc:2331] [cf] [JOB 12] Compacting 1@3 files to L14, score 2",
       "begins 14 2"},
      {"Compacting 2@0 + 3@1 files", "nothing"},  // LevelDB's
      {"[default] [JOB 4] Compacted 4@0 + 1@1 files to L1 => 10485760 bytes", "nothing"},
      {"[default] [JOB 4] Compacting 4@0 files to L999999999999, score 1", "nothing"},
      {"[default] [JOB 4] Compacting 4@0 files to L", "nothing"},
      {"EVENT_LOG_v1 {\"time_micros\": 1, \"job\": 3, \"event\": \"flush_started\"}", "begins 0 1"},
      {"EVENT_LOG_v1 {\"time_micros\": 1, \"job\": 3, \"event\": \"flush_finished\"}", "ends"},
      {"EVENT_LOG_v1 {\"time_micros\": 1, \"job\": 4, \"event\": \"compaction_started\"}",
       "nothing"},
      {"EVENT_LOG_v1 {\"time_micros\": 1, \"job\": 4, \"event\": \"compaction_finished\"}", "ends"},
      {"[default] [WriteLevel0TableForRecovery] Level-0 table #9: started", "begins 0 4"},
      {"[default] [WriteLevel0TableForRecovery] Level-0 table #9: 1081 bytes OK", "ends"},
      {"a value with Compacting in it", "nothing"},
      {"", "nothing"},
  };
  for (const Row& row : rows) {
    Expect(row.line, Text(ReadLogLine(row.line, std::strlen(row.line))), row.says);
  }
}

// LevelDB's ends say what ends, since a flush comes in the midst of a compaction.
void LinesOfLevelDb() {
  struct Row {
    const char* line;
    const char* says;
  };
  const Row rows[] = {
      {"Compacting 4@0 + 1@1 files", "begins 1 2"},
      {"Compacting 1@3 + 12@4 files\n", "begins 4 2"},
      {"Compacted 4@0 + 1@1 files => 10485760 bytes", "ends 2"},
      {"Level-0 table #9: started", "begins 0 1"},
      {"Level-0 table #9: 1081 bytes OK", "ends 1"},
      {"Level-0 table #9: 0 bytes IO error: x: No space left on device", "ends 1"},
      {"Level-0 table #9", "nothing"},
      {"Compacting 4@0 + 1@99 files", "nothing"},
      {"Compacting 4@0 + 1@9999999999 files", "nothing"},
      {"Compacting 4@0 + 1@", "nothing"},
      {"Compacting 4@0", "nothing"},
      {"Compacting @0 + 1@1 files", "nothing"},
      {"Generated table #12@1: 900 keys, 4096 bytes", "nothing"},
      {"Moved #12 to level-2 4096 bytes OK: files[ 0 1 ]", "nothing"},
      {"", "nothing"},
  };
  for (const Row& row : rows) {
    const LineSays says = ReadLevelDbLine(row.line, std::strlen(row.line));
    std::string text = Text(says);
    if (text == "ends") text += " " + std::to_string(static_cast<int>(says.origin));
    Expect(row.line, text, row.says);
  }
}

// Builds edits as a host encodes them.
class Edit {
 public:
  Edit& Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  Edit& Slice(const std::string& text) {
    Varint(text.size());
    bytes_ += text;
    return *this;
  }
  Edit& Deleted(int level, uint64_t number) { return Varint(6).Varint(level).Varint(number); }
  Edit& New(int level, uint64_t number) {
    Varint(103).Varint(level).Varint(number).Varint(4096).Slice("smallest").Slice("largest");
    return Varint(7).Varint(9).Varint(5).Slice("time").Varint(70).Slice("").Varint(1);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string LevelsIn(const std::string& bytes) {
  std::vector<TableLevel> tables;
  ReadEdit(bytes, &tables);
  return Text(tables);
}

void EditsSayLevels() {
  struct Row {
    const char* what;
    std::string bytes;
    const char* levels;
  };
  const std::string keys = Edit().Slice("a").Slice("b").bytes();
  const std::string scalars =
      Edit().Varint(1).Slice("cmp").Varint(2).Varint(7).Varint(3).Varint(8).Varint(4).Varint(900)
          .Varint(9).Varint(0).Varint(10).Varint(3).Varint(200).Varint(1).Varint(203).Varint(1)
          .Varint(300).Varint(2).Varint(5).Varint(2).Slice("key").Varint(202).bytes();
  const std::string blob =
      Edit().Varint(400).Varint(30).Varint(5).Varint(99).Slice("crc").Slice("sum").Varint(0)
          .Varint(401).Varint(30).Varint(1).Varint(9).Varint(8).Slice("x").Varint(0).bytes();
  const Row rows[] = {
      {"a flush", Edit().New(0, 12).bytes(), "12@0"},
      {"a trivial move", Edit().Deleted(1, 12).New(2, 12).bytes(), "12@- 12@2"},
      {"a compaction", Edit().Deleted(0, 3).Deleted(1, 4).New(1, 300).New(1, 301).bytes(),
       "3@- 4@- 300@1 301@1"},
      {"LevelDB's file", Edit().Varint(7).Varint(1).Varint(5).Varint(9).bytes() + keys, "5@1"},
      {"with sequences",
       Edit().Varint(100).Varint(1).Varint(5).Varint(9).bytes() + keys +
           Edit().Varint(1).Varint(2).New(3, 6).bytes(),
       "5@1 6@3"},
      {"with a path",
       Edit().Varint(102).Varint(1).Varint(5).Varint(1).Varint(9).bytes() + keys +
           Edit().Varint(1).Varint(2).New(3, 6).bytes(),
       "5@1 6@3"},
      {"other tags before it", scalars + Edit().New(4, 8).bytes(), "8@4"},
      {"blob files before it", blob + Edit().New(4, 8).bytes(), "8@4"},
      {"a tag that may be ignored", Edit().Varint(8193).Slice("id").New(4, 8).bytes(), "8@4"},
      {"a tag to come that may be ignored", Edit().Varint(8300).Slice("?").New(4, 8).bytes(),
       "8@4"},
      {"a tag without length", Edit().New(4, 8).Varint(8196).Slice("?").New(4, 9).bytes(), "8@4"},
      {"an unknown tag", Edit().New(4, 8).Varint(999).New(4, 9).bytes(), "8@4"},
      {"a level that no host has", Edit().New(4, 8).New(63, 9).New(4, 10).bytes(), "8@4"},
      {"cut in a file", Edit().New(4, 8).New(4, 9).bytes().substr(0, 50), "8@4"},
      {"a varint without end", std::string(12, '\xff'), ""},
      {"nothing", "", ""},
  };
  for (const Row& row : rows) Expect(row.what, LevelsIn(row.bytes), row.levels);
}

// A file as a host writes it: records in frames of blocks of 32 KiB.
class Log {
 public:
  explicit Log(bool is_recyclable = false) : is_recyclable_(is_recyclable) {}

  Log& Record(const std::string& record) {
    const size_t header = is_recyclable_ ? 11 : 7;
    size_t done = 0;
    do {
      size_t left = 32768 - bytes_.size() % 32768;
      if (left < header) {
        bytes_.append(left, '\0');
        left = 32768;
      }
      const size_t len = std::min(record.size() - done, left - header);
      const bool is_last = done + len == record.size();
      const int type = done == 0 ? (is_last ? 1 : 2) : (is_last ? 4 : 3);
      Frame(type, record.substr(done, len));
      done += len;
    } while (done < record.size());
    return *this;
  }

  Log& Frame(int type, const std::string& bytes) {
    bytes_ += "crc!";
    bytes_.push_back(static_cast<char>(bytes.size()));
    bytes_.push_back(static_cast<char>(bytes.size() >> 8));
    bytes_.push_back(static_cast<char>(is_recyclable_ ? type + 4 : type));
    if (is_recyclable_) bytes_ += "numb";
    bytes_ += bytes;
    return *this;
  }

  Log& Raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  bool is_recyclable_;
  std::string bytes_;
};

std::string LevelsOf(const std::string& file, size_t piece) {
  ManifestTap tap;
  std::vector<TableLevel> tables;
  for (size_t at = 0; at < file.size(); at += piece) {
    tap.Feed(file.data() + at, std::min(piece, file.size() - at), &tables);
  }
  return Text(tables);
}

std::string Long(int level, uint64_t number, size_t len) {
  return Edit().Varint(1).Slice(std::string(len, 'c')).New(level, number).bytes();
}

void FilesSayLevelsInWhateverPiecesTheyCome() {
  struct Row {
    const char* what;
    std::string bytes;
    const char* levels;
  };
  const std::string one = Edit().New(0, 1).bytes();
  const std::string two = Edit().New(5, 2).bytes();
  const std::string room_left = Edit().Varint(1).Slice(std::string(32768 - 7 - 5 - 4, 'c')).bytes();
  const Row rows[] = {
      {"two records", Log().Record(one).Record(two).bytes(), "1@0 2@5"},
      {"a record over three blocks", Log().Record(Long(3, 9, 70000)).Record(two).bytes(),
       "9@3 2@5"},
      {"a block's end too small for a header", Log().Record(room_left).Record(two).bytes(), "2@5"},
      {"with log numbers", Log(true).Record(Long(3, 9, 70000)).Record(two).bytes(), "9@3 2@5"},
      {"room allocated ahead", Log().Record(one).Raw(std::string(1000, '\0')).bytes(), "1@0"},
      {"an unknown type", Log().Frame(77, one).Record(two).bytes(), "2@5"},
      {"a middle without a first", Log().Frame(3, one).Frame(4, one).Record(two).bytes(), "2@5"},
      {"a first without a last", Log().Frame(2, one).Record(two).bytes(), "2@5"},
      {"an empty record", Log().Record("").Record(two).bytes(), "2@5"},
      {"a length beyond its block",
       Log().Record(one).Raw("crc!\xff\xff\x01").Raw(std::string(32768, 'x')).bytes(), "1@0"},
      {"cut in a record", Log().Record(one).Record(two).bytes().substr(0, 60), "1@0"},
  };
  for (const Row& row : rows) {
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{4096}, size_t{1} << 20}) {
      const std::string what = std::string(row.what) + " in pieces of " + std::to_string(piece);
      Expect(what, LevelsOf(row.bytes, piece), row.levels);
    }
  }
}

// The same inputs each run.
void AnyBytesAreTaken() {
  uint64_t state = 88172645463325252;
  const auto next = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  };
  const std::string good = Log().Record(Long(3, 9, 70000)).Record(Edit().New(5, 2).bytes()).bytes();
  for (int round = 0; round < 1000; round++) {
    std::string bytes = good.substr(next() % good.size());
    for (int flips = static_cast<int>(next() % 20); flips > 0 && !bytes.empty(); flips--) {
      bytes[next() % bytes.size()] = static_cast<char>(next());
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  // Short ones: an edit, or a line.
  const std::string edit = Edit().Deleted(1, 12).New(2, 12).bytes();
  const std::string lines[] = {edit, "[default] [JOB 4] Compacting 4@0 + 1@1 files to L1, score 1",
                               "Compacting 4@0 + 1@1 files", "Level-0 table #9: started"};
  for (int round = 0; round < 20000; round++) {
    std::string bytes = lines[next() % 4];
    bytes[next() % bytes.size()] = static_cast<char>(next());
    bytes.resize(next() % (bytes.size() + 3));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
}

}  // namespace

int main() {
  LinesSayWhichJobBeginsAndEnds();
  LinesOfLevelDb();
  EditsSayLevels();
  FilesSayLevelsInWhateverPiecesTheyCome();
  AnyBytesAreTaken();
  std::puts("taps_test: log lines, edits, files in pieces, any bytes: passed");
  return 0;
}
