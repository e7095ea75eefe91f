// The host's file that serves calls now, and the one before it until its last call has returned.
//
//   slot 0: [calls under way] file     current_ says which slot new calls use
//   slot 1: [calls under way] file     the other one is empty, or drains
//
// 1. A call finishes with the file that it began with.
// 2. A file that was replaced is closed by its last call, or at once where there is none.
// 3. A call takes a lock only when it is the last one of a file that was replaced.
//
// Why it holds: a call counts itself in a slot and then looks whether that slot is still current.
// If it is not, the call has touched nothing and tries again. A slot is emptied and filled under
// the lock, only while it is not current and its count is 0; a call that counts itself later than
// that sees that the slot is not current, or the new file.
//
// Threads: any number of calls and of replacements.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace thermocline {

template <typename File>
class CurrentFile {
 public:
  // The file of one call, which stays open while this lives.
  class Use {
   public:
    Use(const CurrentFile* owner, int slot) : owner_(owner), slot_(slot) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { owner_->Release(slot_); }

    File& operator*() const { return *owner_->slots_[slot_].file; }
    File* operator->() const { return owner_->slots_[slot_].file.get(); }

   private:
    const CurrentFile* owner_;
    int slot_;
  };

  explicit CurrentFile(std::unique_ptr<File> file) { slots_[0].file = std::move(file); }

  Use Now() const {
    for (;;) {
      const int slot = current_.load();
      slots_[slot].calls.fetch_add(1);
      if (current_.load() == slot) return Use(this, slot);
      Release(slot);
    }
  }

  // True where Replace would succeed now, were it the only one.
  bool CanReplace() const { return slots_[1 - current_.load()].calls.load() == 0; }

  // Calls that begin from now on use `next`. False, and nothing happens, where the file before the
  // present one still serves a call.
  bool Replace(std::unique_ptr<File>* next) {
    const std::lock_guard<std::mutex> guard(lock_);
    const int old = current_.load();
    Slot& other = slots_[1 - old];
    if (other.calls.load() != 0) return false;
    other.file = std::move(*next);
    current_.store(1 - old);
    if (slots_[old].calls.load() == 0) slots_[old].file.reset();
    return true;
  }

 private:
  struct Slot {
    std::atomic<uint32_t> calls{0};
    std::unique_ptr<File> file;
  };

  void Release(int slot) const {
    if (slots_[slot].calls.fetch_sub(1) != 1 || current_.load() == slot) return;
    const std::lock_guard<std::mutex> guard(lock_);
    if (slots_[slot].calls.load() == 0 && current_.load() != slot) slots_[slot].file.reset();
  }

  mutable Slot slots_[2];
  std::atomic<int> current_{0};
  mutable std::mutex lock_;
};

}  // namespace thermocline
