// The levels of tables, from the bytes of a MANIFEST as its host appends or reads them.
//
//   MANIFEST   = blocks of 32 KiB of records: CRC 4, length 2, type 1, [log number 4], bytes
//   record     = one VersionEdit: varint tag, then what that tag has, and so on
//
// It corrects the level that was guessed when a table was made, and it is the only sign of a
// trivial move. LevelDB's format is a part of RocksDB's.
//
// 1. Pure: bytes in, (table, level) out. Any bytes are taken.
// 2. Of an edit counts what stands before the first thing that is not understood; of a file what
//    is in records whose frames are whole. Nothing fails: a level that is missed costs speed only.
// 3. At most kRecordBytesMax are held at once.
//
// Threads: ReadEdit any; a ManifestTap is used by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace thermocline {

struct TableLevel {
  uint64_t number;
  // kLevelUnknown: the table is no more on the level it had.
  int level;
};

constexpr size_t kRecordBytesMax = size_t{64} << 20;

// Appends what one VersionEdit says about tables, in its order.
void ReadEdit(std::string_view edit, std::vector<TableLevel>* tables);

// Puts records together from a file's bytes, which come in order and in pieces of any length.
class ManifestTap {
 public:
  // Appends what the records say that end in this piece.
  void Feed(const char* bytes, size_t len, std::vector<TableLevel>* tables);

 private:
  size_t TakeHeader(std::string_view bytes);
  size_t TakeBody(std::string_view bytes, std::vector<TableLevel>* tables);
  void BeginBody();
  void EndBody(std::vector<TableLevel>* tables);

  size_t in_block_ = 0;
  std::string header_;
  size_t body_left_ = 0;
  bool in_body_ = false;
  // The block's rest cannot be told apart into records.
  bool skips_block_ = false;
  int type_ = 0;
  std::string record_;
  bool in_record_ = false;
};

}  // namespace thermocline
