// A mapping of a file that does not change, which can move to another place while it is read.
//
//   address   |--------------- bytes ---------------|      stays for as long as the mapping lives
//   place     fast/2-84.000086.ldb   then   slow/3-12.000086.ldb
//
// 1. An address that was handed out holds the same bytes until the mapping goes: another place is
//    mapped elsewhere, and only where the file there is as long; then that mapping is moved over the
//    one before, in one call.
// 2. A file is mapped as LevelDB does it: up to 1,000 at a time, on 64 bits, and none that is empty.
//
// Threads: any number read; one moves.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace thermocline::of_leveldb {

class Mapping {
 public:
  // The file at `place`; NULL where it is not mapped, with the system's error or 0.
  static std::unique_ptr<Mapping> Of(const std::string& place, int* error);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Maps the same bytes at another place. Gives 0, or the system's error, and nothing has
  // changed.
  int MoveTo(const std::string& place);

  const char* bytes() const { return bytes_; }
  size_t len() const { return len_; }

 private:
  Mapping(const char* bytes, size_t len) : bytes_(bytes), len_(len) {}

  const char* const bytes_;
  const size_t len_;
};

}  // namespace thermocline::of_leveldb
