// Reads by extents of a managed file (`cache=extents`): what is kept on the fastest tier is served,
// and what is wanted there is read by the host in one piece with what it asked for.
//
// 1. An answer lies in the caller's buffer.
// 2. Whatever goes wrong, the host reads its file as it would without this.
// 3. Without extents a read pays one call that tests a field, and no memory.
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

// True where up to `n` bytes at `offset` are in `scratch`: `got` of them. `epoch` is that of the
// host's open file, or an earlier one. `read(offset, len, to, &bytes, &bytes_len)` reads at the
// host's file, whose offsets, lengths and buffers are multiples of `alignment`.
template <typename Read>
bool ReadByExtents(const thermocline_file* file, uint64_t epoch, uint64_t offset, size_t n,
                   char* scratch, size_t alignment, Read read, size_t* got) {
  thermocline_wanted wanted;
  const int64_t served = thermocline_file_read_cached(file, epoch, offset, scratch, n, &wanted);
  if (served >= 0) {
    *got = static_cast<size_t>(served);
    return true;
  }
  if (wanted.len == 0) return false;
  constexpr size_t kPage = 4096;
  const size_t unit = std::max(alignment, kPage);
  // Extents begin at multiples of 4 KiB.
  if (wanted.offset % alignment != 0) return false;
  const size_t len = (wanted.len + unit - 1) / unit * unit;
  const std::unique_ptr<char, FreeMemory> memory(
      static_cast<char*>(std::aligned_alloc(unit, len)));
  if (memory == nullptr) return false;
  const char* bytes = nullptr;
  size_t bytes_len = 0;
  if (!read(wanted.offset, alignment == 1 ? wanted.len : len, memory.get(), &bytes, &bytes_len)) {
    return false;
  }
  if (bytes_len < wanted.len) return false;
  thermocline_file_fill(file, epoch, &wanted, bytes, wanted.len);
  const size_t skip = offset - wanted.offset;
  *got = std::min(n, bytes_len - skip);
  std::memcpy(scratch, bytes + skip, *got);
  return true;
}

}  // namespace thermocline
