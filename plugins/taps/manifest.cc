// See manifest.h.
#include "manifest.h"

#include <algorithm>

#include "log_lines.h"

namespace thermocline {
namespace {

constexpr size_t kBlockBytes = 32768;
constexpr size_t kHeaderBytes = 7;
constexpr size_t kRecyclableHeaderBytes = 11;

// Types of frames; 5 to 8 are the same four with a log number in the header.
enum FrameType : int { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4, kLastRecyclable = 8 };

// Tags of a VersionEdit.
enum Tag : uint32_t {
  kComparator = 1,
  kLogNumber = 2,
  kNextFileNumber = 3,
  kLastSequence = 4,
  kCompactCursor = 5,
  kDeletedFile = 6,
  kNewFile = 7,
  kPrevLogNumber = 9,
  kMinLogNumberToKeep = 10,
  kNewFile2 = 100,
  kNewFile3 = 102,
  kNewFile4 = 103,
  kColumnFamily = 200,
  kColumnFamilyAdd = 201,
  kColumnFamilyDrop = 202,
  kMaxColumnFamily = 203,
  kInAtomicGroup = 300,
  kBlobFileAddition = 400,
  kBlobFileGarbage = 401,
  // Tags with this bit have their length, so that older readers can skip them; but for a few that
  // were written without.
  kSafeToIgnore = 1 << 13,
  kFirstWithoutLength = kSafeToIgnore + 2,
  kLastWithoutLength = kSafeToIgnore + 5,
};
constexpr uint32_t kEndOfNewFile4 = 1;
constexpr uint32_t kEndOfBlobFields = 0;

// Reads from the front of some bytes; false where they do not hold what is asked for.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  bool IsAtEnd() const { return rest_.empty(); }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Varint32(uint32_t* value) {
    uint64_t wide = 0;
    if (!Varint(&wide) || wide > UINT32_MAX) return false;
    *value = static_cast<uint32_t>(wide);
    return true;
  }

  bool Varints(int count) {
    uint64_t value = 0;
    while (count > 0 && Varint(&value)) count--;
    return count == 0;
  }

  bool Slices(int count) {
    uint64_t len = 0;
    while (count > 0 && Varint(&len) && len <= rest_.size()) {
      rest_.remove_prefix(static_cast<size_t>(len));
      count--;
    }
    return count == 0;
  }

  // Fields with a tag and a length each, up to the tag `end`.
  bool Fields(uint32_t end) {
    uint32_t tag = 0;
    while (Varint32(&tag)) {
      if (tag == end) return true;
      if (!Slices(1)) return false;
    }
    return false;
  }

  bool Level(int* level) {
    uint32_t value = 0;
    if (!Varint32(&value) || value > static_cast<uint32_t>(kLevelMax)) return false;
    *level = static_cast<int>(value);
    return true;
  }

 private:
  std::string_view rest_;
};

bool ReadNewFile(Reader* edit, uint32_t tag, TableLevel* table) {
  if (!edit->Level(&table->level) || !edit->Varint(&table->number)) return false;
  // Path, length; smallest and largest key; their sequences; the rest.
  if (!edit->Varints(tag == kNewFile3 ? 2 : 1) || !edit->Slices(2)) return false;
  if (tag != kNewFile && !edit->Varints(2)) return false;
  return tag != kNewFile4 || edit->Fields(kEndOfNewFile4);
}

// A tag that says nothing about tables.
bool SkipTag(Reader* edit, uint32_t tag) {
  switch (tag) {
    case kLogNumber:
    case kNextFileNumber:
    case kLastSequence:
    case kPrevLogNumber:
    case kMinLogNumberToKeep:
    case kColumnFamily:
    case kMaxColumnFamily:
    case kInAtomicGroup:
      return edit->Varints(1);
    case kComparator:
    case kColumnFamilyAdd:
      return edit->Slices(1);
    case kColumnFamilyDrop:
      return true;
    case kCompactCursor:
      return edit->Varints(1) && edit->Slices(1);
    case kBlobFileAddition:
      return edit->Varints(3) && edit->Slices(2) && edit->Fields(kEndOfBlobFields);
    case kBlobFileGarbage:
      return edit->Varints(3) && edit->Fields(kEndOfBlobFields);
    default:
      if (tag >= kFirstWithoutLength && tag <= kLastWithoutLength) return false;
      return (tag & kSafeToIgnore) != 0 && edit->Slices(1);
  }
}

bool IsNewFile(uint32_t tag) {
  return tag == kNewFile || tag == kNewFile2 || tag == kNewFile3 || tag == kNewFile4;
}

}  // namespace

void ReadEdit(std::string_view bytes, std::vector<TableLevel>* tables) {
  Reader edit(bytes);
  uint32_t tag = 0;
  while (!edit.IsAtEnd() && edit.Varint32(&tag)) {
    TableLevel table = {0, kLevelUnknown};
    int level = kLevelUnknown;
    if (tag == kDeletedFile) {
      if (!edit.Level(&level) || !edit.Varint(&table.number)) return;
      tables->push_back(table);
    } else if (IsNewFile(tag)) {
      if (!ReadNewFile(&edit, tag, &table)) return;
      tables->push_back(table);
    } else if (!SkipTag(&edit, tag)) {
      return;
    }
  }
}

void ManifestTap::Feed(const char* bytes, size_t len, std::vector<TableLevel>* tables) {
  std::string_view rest(bytes, len);
  while (!rest.empty()) {
    const size_t in_block = std::min(rest.size(), kBlockBytes - in_block_);
    const std::string_view now = rest.substr(0, in_block);
    const bool is_padding = header_.empty() && kBlockBytes - in_block_ < kHeaderBytes;
    size_t taken = in_block;
    if (in_body_) {
      taken = TakeBody(now, tables);
    } else if (!skips_block_ && !is_padding) {
      taken = TakeHeader(now);
    }
    rest.remove_prefix(taken);
    in_block_ += taken;
    if (in_block_ == kBlockBytes) {
      in_block_ = 0;
      header_.clear();
      skips_block_ = false;
    }
  }
}

size_t ManifestTap::TakeHeader(std::string_view bytes) {
  size_t wanted = kHeaderBytes;
  if (header_.size() >= kHeaderBytes && header_[6] > kLast) wanted = kRecyclableHeaderBytes;
  const size_t taken = std::min(bytes.size(), wanted - header_.size());
  header_.append(bytes.substr(0, taken));
  if (header_.size() < wanted) return taken;
  type_ = static_cast<unsigned char>(header_[6]);
  const bool is_recyclable = type_ > kLast && type_ <= kLastRecyclable;
  if (is_recyclable && header_.size() < kRecyclableHeaderBytes) return taken;
  if (is_recyclable) type_ -= kLast;
  body_left_ = static_cast<unsigned char>(header_[4]) +
               (static_cast<size_t>(static_cast<unsigned char>(header_[5])) << 8);
  header_.clear();
  // A frame lies within its block; zeros are room that was allocated ahead.
  skips_block_ = body_left_ > kBlockBytes - in_block_ - taken || type_ == 0;
  if (!skips_block_) BeginBody();
  return taken;
}

void ManifestTap::BeginBody() {
  in_body_ = true;
  if (type_ == kFull || type_ == kFirst) {
    record_.clear();
    in_record_ = true;
  }
}

size_t ManifestTap::TakeBody(std::string_view bytes, std::vector<TableLevel>* tables) {
  const size_t taken = std::min(bytes.size(), body_left_);
  if (in_record_ && type_ >= kFull && type_ <= kLast) {
    record_.append(bytes.substr(0, taken));
    in_record_ = record_.size() <= kRecordBytesMax;
  }
  body_left_ -= taken;
  if (body_left_ == 0) EndBody(tables);
  return taken;
}

void ManifestTap::EndBody(std::vector<TableLevel>* tables) {
  in_body_ = false;
  if (type_ != kFull && type_ != kLast) return;
  if (in_record_) ReadEdit(record_, tables);
  in_record_ = false;
  record_.clear();
}

}  // namespace thermocline
