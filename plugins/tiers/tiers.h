// Thermocline's C interface as owned C++ values. Each host's plugin says what an answer is in the
// host's own terms.
//
// 1. Nothing here throws, and no exception crosses the C interface.
// 2. A status keeps its text: what, where and the way out.
//
// Threads: both types are shared freely.
#pragma once

#include <thermocline_tiers.h>

#include <memory>
#include <string>

#include "open_readers.h"

namespace thermocline {

// An answer of the C interface with its text.
class Answer {
 public:
  Answer(thermocline_status status, char* why);

  bool IsOk() const { return status_ == THERMOCLINE_OK; }
  bool Is(thermocline_status status) const { return status_ == status; }
  thermocline_status status() const { return status_; }
  const std::string& text() const { return text_; }

 private:
  thermocline_status status_;
  std::string text_;
};

struct CloseFile {
  void operator()(thermocline_file* file) const { thermocline_file_close(file); }
};
// An open managed file; null for a file that is the host's own.
using OpenFile = std::unique_ptr<thermocline_file, CloseFile>;

struct CloseEntries {
  void operator()(thermocline_entries* entries) const { thermocline_entries_close(entries); }
};
using Entries = std::unique_ptr<thermocline_entries, CloseEntries>;

// What the host opens a file for. Reads are served at a copy on a faster tier, where there is one.
enum class Access { kRead, kWrite };

Answer PlaceOf(const thermocline_file* file, Access access, std::string* place);
Answer Synced(const thermocline_file* file);
Answer ContinueElsewhere(const thermocline_file* file, uint64_t len);

// The host directories of one URI. Each call is that of thermocline_tiers.h.
class Tiers {
 public:
  using Path = std::string;

  // The same one for the same URI while any of its users lives, since a directory is changed by
  // one at a time.
  static std::shared_ptr<Tiers> Open(const std::string& uri, std::string* why);

  ~Tiers();
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;

  // Files that moved are opened where they lie first, which gives back what they held elsewhere, and
  // reads so far are told.
  Answer CreateFile(const Path& path, const thermocline_new_file& of, OpenFile* file) const;
  Answer OpenToRead(const Path& path, OpenFile* file) const;
  Answer OpenToWrite(const Path& path, OpenFile* file) const;
  Answer Rename(const Path& from, const Path& to) const;
  Answer Link(const Path& from, const Path& to) const;
  Answer Delete(const Path& path) const;
  Answer Truncate(const Path& path, uint64_t len) const;
  Answer List(const Path& directory, Entries* entries) const;
  Answer SyncDirectory(const Path& directory) const;
  Answer RemoveDirectory(const Path& directory) const;
  Answer ReleaseDirectory(const Path& directory) const;
  Answer SetLevel(const Path& path, int level) const;
  Answer FreeSpace(const Path& directory, uint64_t* bytes) const;
  // One line of JSON: what lies where, what was read, what moved.
  Answer Stats(std::string* json) const;

  OpenReaders* readers() const { return &readers_; }

 private:
  explicit Tiers(thermocline_tiers* tiers) : tiers_(tiers) {}

  thermocline_tiers* tiers_;
  mutable OpenReaders readers_;
};

}  // namespace thermocline
