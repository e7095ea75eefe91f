// See mapping.h.
#include "mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace thermocline::of_leveldb {

namespace {

// As LevelDB's own limit.
constexpr int kMappedMax = sizeof(void*) >= 8 ? 1000 : 0;

std::atomic<int> mapped{0};

// Maps the file at `place`. `*len` is its length, which has to be that unless it is 0.
void* Map(const std::string& place, size_t* len, int* error) {
  *error = 0;
  const int file = open(place.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    *error = errno;
    return nullptr;
  }
  struct stat found = {};
  void* bytes = MAP_FAILED;
  if (fstat(file, &found) != 0) {
    *error = errno;
  } else if (*len != 0 && static_cast<size_t>(found.st_size) != *len) {
    *error = ESTALE;
  } else if (found.st_size > 0) {
    *len = static_cast<size_t>(found.st_size);
    bytes = mmap(nullptr, *len, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) *error = errno;
  }
  close(file);
  return bytes == MAP_FAILED ? nullptr : bytes;
}

}  // namespace

std::unique_ptr<Mapping> Mapping::Of(const std::string& place, int* error) {
  *error = 0;
  if (mapped.fetch_add(1) < kMappedMax) {
    size_t len = 0;
    void* bytes = Map(place, &len, error);
    if (bytes != nullptr) {
      return std::unique_ptr<Mapping>(new Mapping(static_cast<const char*>(bytes), len));
    }
  }
  mapped.fetch_sub(1);
  return nullptr;
}

Mapping::~Mapping() {
  munmap(const_cast<char*>(bytes_), len_);
  mapped.fetch_sub(1);
}

int Mapping::MoveTo(const std::string& place) {
  int error = 0;
  size_t len = len_;
  // Elsewhere first: what the place's file system refuses, it refuses while the old bytes are there.
  void* const bytes = Map(place, &len, &error);
  if (bytes == nullptr) return error;
  void* const old = const_cast<char*>(bytes_);
  if (mremap(bytes, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, old) == old) return 0;
  error = errno;
  munmap(bytes, len);
  return error;
}

}  // namespace thermocline::of_leveldb
