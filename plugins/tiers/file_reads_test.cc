// Tests of file_reads.h over a library of a few lines that counts what it is told.
//
// Exit status 0 when all passed.
#include "file_reads.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct thermocline_file {
  uint64_t epoch = 0;
  mutable std::atomic<uint64_t> told{0};
  mutable std::atomic<uint64_t> calls{0};
};

extern "C" const uint64_t* thermocline_file_epoch_address(const thermocline_file* file) {
  return &file->epoch;
}

extern "C" void thermocline_file_was_read_times(const thermocline_file* file, uint64_t times) {
  file->told += times;
  file->calls++;
}

namespace {

using thermocline::FileReads;
using thermocline::kProcessorParts;

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "file_reads_test: %s\n", what);
  std::exit(1);
}

void Add(const FileReads& reads, unsigned part, int times) {
  for (int at = 0; at < times; at++) reads.Add(part);
}

void ReadsAreToldNowAndThenAndAllInTheEnd() {
  thermocline_file file;
  {
    const FileReads reads(&file);
    Add(reads, 0, 15);
    Check(file.calls == 0, "a read calls nothing");
    Add(reads, 0, 1);
    Check(file.told == 16 && file.calls == 1, "sixteen are told by one call");
    Add(reads, 0, 3);
    reads.Tell();
    reads.Tell();
    Check(file.told == 19 && file.calls == 2, "the rest is told where it is asked for, once");
    Add(reads, 0, 2);
  }
  Check(file.told == 21, "what is left is told in the end");
}

void PartsCountApart() {
  thermocline_file file;
  const FileReads reads(&file);
  std::vector<std::thread> threads;
  for (unsigned part = 0; part < kProcessorParts; part++) {
    threads.emplace_back([&reads, part] { Add(reads, part, 100 * 16 + 15); });
  }
  for (std::thread& thread : threads) thread.join();
  Check(file.told == kProcessorParts * 100 * 16, "each part is told when it is full");
  reads.Tell();
  Check(file.told == kProcessorParts * (100 * 16 + 15), "all of them");
  Check(thermocline::ProcessorPart() < kProcessorParts, "a processor has a part");
}

// As on a machine with more processors than parts.
void APartThatThreadsShareGoesOnCounting() {
  thermocline_file file;
  const FileReads reads(&file);
  std::vector<std::thread> threads;
  for (int at = 0; at < 4; at++) {
    threads.emplace_back([&reads] { Add(reads, 3, 10000); });
  }
  for (std::thread& thread : threads) thread.join();
  reads.Tell();
  Check(file.told > 0, "counts are lost by the way, not all");
  const uint64_t before = file.told;
  Add(reads, 3, 15);
  Check(file.told == before, "it begins anew");
  Add(reads, 3, 1);
  Check(file.told == before + 16, "and tells the next sixteen");
}

void TheEpochIsThatOfTheLibrary() {
  thermocline_file file;
  const FileReads reads(&file);
  Check(reads.Epoch() == 0, "no move");
  file.epoch = 2;
  Check(reads.Epoch() == 2, "two of them");
}

}  // namespace

int main() {
  ReadsAreToldNowAndThenAndAllInTheEnd();
  PartsCountApart();
  APartThatThreadsShareGoesOnCounting();
  TheEpochIsThatOfTheLibrary();
  std::puts("file_reads_test: counts and epochs: passed");
  return 0;
}
