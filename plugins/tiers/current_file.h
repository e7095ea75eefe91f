// The host's file that serves calls now, and the one before it until its last call has returned.
//
//   slot 0: [calls under way] file     current_ says which slot new calls use
//   slot 1: [calls under way] file     the other one is empty, or drains
//
// 1. A call finishes with the file that it began with.
// 2. A file that was replaced is closed by its last call, or at once where there is none.
// 3. A call takes a lock only when it is the last one of a file that was replaced.
// 4. A call counts itself in the part of its processor, and ends in the part that it began in.
//
// Why it holds: a call counts itself in a slot and then looks whether that slot is still current.
// If it is not, the call has touched nothing and tries again. A slot is emptied and filled under
// the lock, only while it is not current and each part of its count was 0 since then; a call that
// counts itself after that look sees that the slot is not current, or the new file.
//
// Threads: any number of calls and of replacements.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "processor_part.h"

namespace thermocline {

template <typename File>
class CurrentFile {
 public:
  // The file of one call, which stays open while this lives.
  class Use {
   public:
    Use(const CurrentFile* owner, int slot, unsigned part)
        : owner_(owner), slot_(slot), part_(part) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { owner_->Release(slot_, part_); }

    File& operator*() const { return *owner_->files_[slot_]; }
    File* operator->() const { return owner_->files_[slot_].get(); }
    // Where the call is counted: also the part for other counts of it.
    unsigned part() const { return part_; }

   private:
    const CurrentFile* const owner_;
    const int slot_;
    const unsigned part_;
  };

  explicit CurrentFile(std::unique_ptr<File> file) { files_[0] = std::move(file); }

  Use Now() const {
    const unsigned part = ProcessorPart();
    for (;;) {
      const int slot = current_.load();
      parts_[part].calls[slot].fetch_add(1);
      if (current_.load() == slot) return Use(this, slot, part);
      Release(slot, part);
    }
  }

  // True where Replace would succeed now, were it the only one.
  bool CanReplace() const { return !HasCalls(1 - current_.load()); }

  // Calls that begin from now on use `next`. False, and nothing happens, where the file before the
  // present one still serves a call.
  bool Replace(std::unique_ptr<File>* next) {
    const std::lock_guard<std::mutex> guard(lock_);
    const int old = current_.load();
    if (HasCalls(1 - old)) return false;
    files_[1 - old] = std::move(*next);
    current_.store(1 - old);
    if (!HasCalls(old)) files_[old].reset();
    return true;
  }

 private:
  struct alignas(kCacheLineBytes) Part {
    // By slot.
    std::atomic<uint32_t> calls[2] = {{0}, {0}};
  };

  bool HasCalls(int slot) const {
    for (const Part& part : parts_) {
      if (part.calls[slot].load() != 0) return true;
    }
    return false;
  }

  void Release(int slot, unsigned part) const {
    if (parts_[part].calls[slot].fetch_sub(1) != 1 || current_.load() == slot) return;
    const std::lock_guard<std::mutex> guard(lock_);
    if (!HasCalls(slot) && current_.load() != slot) files_[slot].reset();
  }

  mutable Part parts_[kProcessorParts];
  std::atomic<int> current_{0};
  mutable std::unique_ptr<File> files_[2];
  mutable std::mutex lock_;
};

}  // namespace thermocline
