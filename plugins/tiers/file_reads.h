// What a read of a managed file has to do with the library: it counts, and it notices a move. Nearly
// always without a call of the library, which would cost a read from the page cache some percent.
//
//   read -> [part of a processor: reads not told] -> 16 of them, or a new table -> the library
//
// 1. The library knows of all reads when a table is made, which is when it looks how cold files are
//    (OpenReaders); besides, it lacks fewer than 16 of each part.
// 2. A read takes no locked instruction to be counted. Where it comes between two steps of another
//    in the same part, some reads count for nothing, or up to 16 twice: counts are hints. On a
//    machine with more processors than parts that happens to reads at the same time, else only where
//    a thread is interrupted between the two steps.
//
// Threads: any. Lives while its file's handle does.
#pragma once

#include <thermocline_tiers.h>

#include <atomic>
#include <cstdint>

#include "processor_part.h"

namespace thermocline {

class FileReads {
 public:
  explicit FileReads(const thermocline_file* file)
      : file_(file), epoch_(thermocline_file_epoch_address(file)) {}
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;
  ~FileReads() { Tell(); }

  // The epoch of the file's place.
  uint64_t Epoch() const { return __atomic_load_n(epoch_, __ATOMIC_ACQUIRE); }

  // One more, counted in a part.
  void Add(unsigned part) const {
    std::atomic<uint32_t>& untold = parts_[part].untold;
    const uint32_t reads = untold.load(std::memory_order_relaxed) + 1;
    if (reads == kToldAtOnce) {
      untold.store(0, std::memory_order_relaxed);
      thermocline_file_was_read_times(file_, reads);
      return;
    }
    untold.store(reads, std::memory_order_relaxed);
    // Written only where it is not: all threads read it.
    if (!has_untold_.load(std::memory_order_relaxed)) {
      has_untold_.store(true, std::memory_order_relaxed);
    }
  }

  // Tells the library of those that it does not know of.
  void Tell() const {
    if (!has_untold_.load(std::memory_order_relaxed)) return;
    has_untold_.store(false, std::memory_order_relaxed);
    uint64_t reads = 0;
    for (Part& part : parts_) reads += part.untold.exchange(0, std::memory_order_relaxed);
    if (reads > 0) thermocline_file_was_read_times(file_, reads);
  }

 private:
  static constexpr uint32_t kToldAtOnce = 16;

  struct alignas(kCacheLineBytes) Part {
    std::atomic<uint32_t> untold{0};
  };

  mutable Part parts_[kProcessorParts];
  const thermocline_file* const file_;
  const uint64_t* const epoch_;
  mutable std::atomic<bool> has_untold_{false};
};

}  // namespace thermocline
