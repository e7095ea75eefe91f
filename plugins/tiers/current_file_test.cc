// Tests of current_file.h: files that know whether they are used after they were closed.
//
// Exit status 0 when all passed.
#include "current_file.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

std::atomic<int> open_files{0};

// Its number stays readable after its end, and is wrong then.
struct File {
  explicit File(int file_number) : number(file_number) { open_files++; }
  ~File() {
    number = -1;
    open_files--;
  }
  std::atomic<int> number;
};

using thermocline::CurrentFile;

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "current_file_test: %s\n", what);
  std::exit(1);
}

void AReplacedFileIsClosedByItsLastCall() {
  CurrentFile<File> current(std::make_unique<File>(1));
  auto next = std::make_unique<File>(2);
  {
    const auto first = current.Now();
    Check(current.Replace(&next), "the first replacement has room");
    Check(first->number == 1 && open_files == 2, "a call finishes with the file it began with");
    Check(current.Now()->number == 2, "a call that begins later has the new file");
    next = std::make_unique<File>(3);
    Check(!current.CanReplace() && !current.Replace(&next), "the file before still serves a call");
    Check(next != nullptr, "a replacement that does not happen takes nothing");
  }
  Check(open_files == 2, "the last call closed the file");
  Check(current.CanReplace() && current.Replace(&next), "then there is room again");
  Check(current.Now()->number == 3 && open_files == 1, "without calls it is closed at once");
}

void CallsAndReplacementsRunBesideEachOther() {
  constexpr int kReplacements = 20000;
  CurrentFile<File> current(std::make_unique<File>(0));
  std::atomic<bool> ends{false};
  std::vector<std::thread> readers;
  for (int at = 0; at < 3; at++) {
    readers.emplace_back([&] {
      int last = 0;
      while (!ends) {
        const auto file = current.Now();
        const int number = file->number;
        Check(number >= last, "an older file, or one that is closed");
        last = number;
      }
    });
  }
  for (int number = 1; number <= kReplacements; number++) {
    auto next = std::make_unique<File>(number);
    while (!current.Replace(&next)) std::this_thread::yield();
  }
  ends = true;
  for (std::thread& reader : readers) reader.join();
  Check(current.Now()->number == kReplacements, "the last replacement is what is left");
  Check(open_files == 1, "all others are closed");
}

}  // namespace

int main() {
  AReplacedFileIsClosedByItsLastCall();
  CallsAndReplacementsRunBesideEachOther();
  Check(open_files == 0, "the owner closes the last one");
  std::puts("current_file_test: calls and replacements: passed");
  return 0;
}
