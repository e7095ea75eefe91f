// When a host's log of information gets the next line of figures.
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace thermocline {

class FiguresDue {
 public:
  FiguresDue() : next_s_(SteadySeconds() + kFirstSeconds) {}

  // True for one caller shortly after the log was opened, when the directory is open as well, and
  // then every ten minutes.
  bool Take() {
    int64_t due = next_s_.load(std::memory_order_relaxed);
    const int64_t now = SteadySeconds();
    return now >= due && next_s_.compare_exchange_strong(due, now + kEverySeconds);
  }

 private:
  static constexpr int64_t kFirstSeconds = 10;
  static constexpr int64_t kEverySeconds = 600;

  static int64_t SteadySeconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
  }

  std::atomic<int64_t> next_s_;
};

}  // namespace thermocline
