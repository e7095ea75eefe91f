// What a host does to a file on a tier that is emulated (`emulated=DEVICE`) takes as long as that
// device would: the time is booked before, and waited for after it. On a real device nothing is.
//
// Threads: any; one charge is one thread's.
#pragma once

#include <thermocline_tiers.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace thermocline {

// What is charged for a file as long as it is open: nothing, and NULL, where no tier is emulated.
inline const thermocline_file* Charged(const thermocline_file* file) {
  return thermocline_file_is_emulated(file) ? file : nullptr;
}

class Charge {
 public:
  // `file` is what is charged, NULL where nothing is; `of` is one of THERMOCLINE_USE_*.
  Charge(const thermocline_file* file, int32_t of, uint64_t offset, size_t len) : Charge(file) {
    Add(of, offset, len);
  }
  explicit Charge(const thermocline_file* file) : file_(file) {}
  ~Charge() {
    if (due_ != 0) thermocline_file_wait(file_, due_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  // One more request of the same call: the device has all of them at once.
  void Add(int32_t of, uint64_t offset, size_t len) {
    if (file_ == nullptr) return;
    due_ = std::max(due_, thermocline_file_book(file_, of, offset, len));
  }

 private:
  const thermocline_file* const file_;
  uint64_t due_ = 0;
};

}  // namespace thermocline
