// Thermocline's C interface as owned C++ values, and its answers as RocksDB's.
//
// 1. Nothing here throws, and no exception crosses the C interface.
// 2. A status keeps its text: what, where and the way out.
//
// Threads: both types are shared freely.
#pragma once

#include <thermocline_tiers.h>

#include <memory>
#include <string>

#include "rocksdb/file_system.h"

namespace thermocline {

// An answer of the C interface with its text.
class Answer {
 public:
  Answer(thermocline_status status, char* why);

  bool IsOk() const { return status_ == THERMOCLINE_OK; }
  bool Is(thermocline_status status) const { return status_ == status; }
  const std::string& text() const { return text_; }
  rocksdb::IOStatus ToIOStatus() const;

 private:
  thermocline_status status_;
  std::string text_;
};

struct CloseFile {
  void operator()(thermocline_file* file) const { thermocline_file_close(file); }
};
// An open managed file; null for a file that is the host's own.
using OpenFile = std::unique_ptr<thermocline_file, CloseFile>;

// What the host opens a file for. Reads are served at a copy on a faster tier, where there is one.
enum class Access { kRead, kWrite };

Answer PlaceOf(const thermocline_file* file, Access access, std::string* place);

// The host directories of one URI.
class Tiers {
 public:
  // The same one for the same URI while any of its users lives, since a directory is changed by
  // one at a time.
  static std::shared_ptr<Tiers> Open(const std::string& uri, std::string* why);

  ~Tiers();
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  thermocline_tiers* get() const { return tiers_; }

  // One line of JSON: what lies where, what moved.
  Answer Stats(std::string* json) const;

 private:
  explicit Tiers(thermocline_tiers* tiers) : tiers_(tiers) {}

  thermocline_tiers* tiers_;
};

}  // namespace thermocline
