// Reads by extents of a managed file (`cache=extents`): what is kept on the fastest tier is served,
// and what is wanted there is read by the host in one piece with what it asked for.
//
// 1. An answer lies in the caller's buffer.
// 2. Whatever goes wrong, the host reads its file as it would without this.
// 3. Where none are kept the host does not ask here, and a read pays nothing.
//
// Threads: any.
#pragma once

#include <thermocline_tiers.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace thermocline {

struct FreeMemory {
  void operator()(char* memory) const { std::free(memory); }
};

// What one read by extents came to before the host read anything.
struct ExtentsAsked {
  // How many bytes are in the caller's buffer; less than 0 where the host has to read.
  int64_t served = -1;
  // What the host is to read in the stead of what it asked for, if `memory` is there: `len` bytes
  // from `wanted.offset` on.
  thermocline_wanted wanted = {};
  size_t len = 0;
  std::unique_ptr<char, FreeMemory> memory;
};

// Asks for up to `n` bytes at `offset`. `epoch` is that of the host's open file, or an earlier one.
// Offsets, lengths and buffers of the host's file are multiples of `alignment`.
inline ExtentsAsked AskExtents(const thermocline_file* file, uint64_t epoch, uint64_t offset,
                               size_t n, char* scratch, size_t alignment) {
  ExtentsAsked asked;
  asked.served = thermocline_file_read_cached(file, epoch, offset, scratch, n, &asked.wanted);
  if (asked.served >= 0 || asked.wanted.len == 0) return asked;
  constexpr size_t kPage = 4096;
  const size_t unit = std::max(alignment, kPage);
  // Extents begin at multiples of 4 KiB.
  if (asked.wanted.offset % alignment != 0) return asked;
  const size_t whole = (asked.wanted.len + unit - 1) / unit * unit;
  asked.len = alignment == 1 ? asked.wanted.len : whole;
  asked.memory.reset(static_cast<char*>(std::aligned_alloc(unit, whole)));
  return asked;
}

// Gives what was wanted, and puts what was asked for into `scratch`: `got` bytes. False where the
// host read less than that.
inline bool TakeExtents(const thermocline_file* file, uint64_t epoch, uint64_t offset, size_t n,
                        char* scratch, const ExtentsAsked& asked, const char* bytes,
                        size_t bytes_len, size_t* got) {
  if (bytes_len < asked.wanted.len) return false;
  thermocline_file_fill(file, epoch, &asked.wanted, bytes, asked.wanted.len);
  const size_t skip = offset - asked.wanted.offset;
  *got = std::min(n, bytes_len - skip);
  std::memcpy(scratch, bytes + skip, *got);
  return true;
}

// True where up to `n` bytes at `offset` are in `scratch`: `got` of them.
// `read(offset, len, to, &bytes, &bytes_len)` reads at the host's file.
template <typename Read>
bool ReadByExtents(const thermocline_file* file, uint64_t epoch, uint64_t offset, size_t n,
                   char* scratch, size_t alignment, Read read, size_t* got) {
  const ExtentsAsked asked = AskExtents(file, epoch, offset, n, scratch, alignment);
  if (asked.served >= 0) {
    *got = static_cast<size_t>(asked.served);
    return true;
  }
  if (asked.memory == nullptr) return false;
  const char* bytes = nullptr;
  size_t bytes_len = 0;
  if (!read(asked.wanted.offset, asked.len, asked.memory.get(), &bytes, &bytes_len)) return false;
  return TakeExtents(file, epoch, offset, n, scratch, asked, bytes, bytes_len, got);
}

}  // namespace thermocline
