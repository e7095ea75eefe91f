// Managed files that LevelDB reads and writes by its own classes, at the place where they lie.
//
//   append -> buffer -> host -> no space -> continue_elsewhere(known length) -> new place -> again
//
// Written:
// 1. The known length is that of the bytes which the host's class has passed on. What it had not is
//    in the buffer here, so that all of it is repeated at the new place, and none of it twice.
// 2. The host hears of a full device only when every tier refused.
// 3. A sync that succeeds has made the bytes durable, then the name.
// 4. After a write that failed all later ones fail: LevelDB would append its next record behind a
//    torn one, where its recovery does not find it, though it was acknowledged.
//
// Read:
// 5. LevelDB keeps answers as long as the table is open, and a file may move meanwhile. So an answer
//    lies in a mapping of ours, which stays where it is (mapping.h), or in the caller's buffer, never
//    in a mapping of the host.
//
// Threads: as LevelDB's classes: any number read, one writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "../tiers/current_file.h"
#include "../tiers/file_reads.h"
#include "../tiers/manifest_levels.h"
#include "../tiers/tiers.h"
#include "leveldb/env.h"
#include "leveldb/slice.h"
#include "leveldb/status.h"
#include "mapping.h"

namespace thermocline::of_leveldb {

class TieredWritableFile : public leveldb::WritableFile {
 public:
  // `len` is what the file holds already.
  TieredWritableFile(leveldb::Env* host, OpenFile file, uint64_t len,
                     std::unique_ptr<leveldb::WritableFile> opened);
  ~TieredWritableFile() override;

  leveldb::Status Append(const leveldb::Slice& data) override;
  leveldb::Status Close() override;
  leveldb::Status Flush() override;
  leveldb::Status Sync() override;

 private:
  leveldb::Status PassOn();
  bool GoOnElsewhere();

  leveldb::Env* const host_;
  // Until it is closed: it may move then.
  OpenFile file_;
  // As long as `opened_` is there.
  const thermocline_file* charged_;
  std::unique_ptr<leveldb::WritableFile> opened_;
  std::string buffer_;
  uint64_t len_;
  // Invariant 4.
  leveldb::Status failed_;
};

// A table that is mapped.
class MappedFile : public leveldb::RandomAccessFile, private OpenReaders::Reader {
 public:
  // `*result` is NULL, without an error, where the file is not to be mapped.
  static leveldb::Status Open(const std::shared_ptr<Tiers>& tiers, OpenFile* file,
                              leveldb::RandomAccessFile** result);

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result,
                       char* scratch) const override;

 private:
  MappedFile(std::shared_ptr<Tiers> tiers, OpenFile file, uint64_t epoch,
             std::unique_ptr<Mapping> mapping);

  void FollowIfMoved() const override;
  void TellReads() const override;
  void Follow() const;

  const std::shared_ptr<Tiers> tiers_;
  const OpenFile file_;
  const bool by_extents_;
  const thermocline_file* const charged_;
  const FileReads reads_;
  const std::unique_ptr<Mapping> mapping_;
  // The epoch of the place that is mapped.
  mutable std::atomic<uint64_t> epoch_;
  mutable std::mutex following_;
  const OpenReaders::Known known_;
};

// A table beyond those that are mapped.
class TieredRandomAccessFile : public leveldb::RandomAccessFile, private OpenReaders::Reader {
 public:
  static leveldb::Status Open(leveldb::Env* host, std::shared_ptr<Tiers> tiers, OpenFile file,
                              leveldb::RandomAccessFile** result);

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result,
                       char* scratch) const override;

 private:
  using Host = leveldb::RandomAccessFile;

  TieredRandomAccessFile(leveldb::Env* host, std::shared_ptr<Tiers> tiers, OpenFile file,
                         uint64_t epoch, std::unique_ptr<Host> opened);

  void FollowIfMoved() const override;
  void TellReads() const override;
  void Follow() const;

  leveldb::Env* const host_;
  const std::shared_ptr<Tiers> tiers_;
  const OpenFile file_;
  const bool by_extents_;
  const thermocline_file* const charged_;
  const FileReads reads_;
  mutable CurrentFile<Host> current_;
  // The epoch of the place that is open.
  mutable std::atomic<uint64_t> epoch_;
  mutable std::mutex following_;
  const OpenReaders::Known known_;
};

// A MANIFEST that is written: the host's own file, whose bytes the tap sees on their way.
class TappedManifestWriter : public leveldb::WritableFile {
 public:
  TappedManifestWriter(std::shared_ptr<Tiers> tiers, const std::string& path,
                       std::unique_ptr<leveldb::WritableFile> file);

  leveldb::Status Append(const leveldb::Slice& data) override;
  leveldb::Status Close() override;
  leveldb::Status Flush() override;
  leveldb::Status Sync() override;

 private:
  const std::unique_ptr<leveldb::WritableFile> file_;
  ManifestLevels levels_;
};

// A MANIFEST that is read. LevelDB reads it from its beginning to its end.
class TappedManifestReader : public leveldb::SequentialFile {
 public:
  TappedManifestReader(std::shared_ptr<Tiers> tiers, const std::string& path,
                       std::unique_ptr<leveldb::SequentialFile> file);

  leveldb::Status Read(size_t n, leveldb::Slice* result, char* scratch) override;
  leveldb::Status Skip(uint64_t n) override;

 private:
  const std::unique_ptr<leveldb::SequentialFile> file_;
  ManifestLevels levels_;
};

}  // namespace thermocline::of_leveldb
