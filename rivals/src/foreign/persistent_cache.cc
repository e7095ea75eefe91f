// RocksDB's cache of blocks on a device (BlockCacheTier), which its C interface lacks.
//
// NewPersistentCache would make one with files of 100 MiB, of which it keeps 2.2 in memory; this one
// has sizes of the caller's, and counts what it writes. Compiled against the headers of the very
// version whose library is linked.
//
// Threads: any, once it is made.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "utilities/persistent_cache/block_cache_tier.h"

// As RocksDB's C interface has them.
struct rocksdb_options_t {
  rocksdb::Options rep;
};

namespace {

class Counted final : public rocksdb::BlockCacheTier {
 public:
  explicit Counted(const rocksdb::PersistentCacheConfig& config) : BlockCacheTier(config) {}
  // Its threads call Reserve until they end.
  ~Counted() override { Close().PermitUncheckedError(); }

  // What a buffer asks for before it is written.
  bool Reserve(const size_t size) override {
    const bool has_room = BlockCacheTier::Reserve(size);
    if (has_room) written_bytes_ += size;
    return has_room;
  }

  uint64_t written_bytes() const { return written_bytes_; }

 private:
  std::atomic<uint64_t> written_bytes_{0};
};

uint64_t Figure(const std::map<std::string, double>& stats, const char* name) {
  const auto found = stats.find(std::string("persistentcache.blockcachetier.") + name);
  return found == stats.end() ? 0 : static_cast<uint64_t>(found->second);
}

}  // namespace

struct thermocline_persistent_cache {
  std::shared_ptr<Counted> cache;
};

// Makes a cache of so many bytes below `path` and sets it in the tables' options. Files leave whole;
// 2.2 of them are in memory, in buffers. Null and the cache, or what is wrong, which the caller frees.
extern "C" char* thermocline_persistent_cache_set(rocksdb_options_t* options, const char* path,
                                                  uint64_t bytes, uint32_t file_bytes,
                                                  uint32_t buffer_bytes, uint64_t queue_bytes,
                                                  bool direct,
                                                  thermocline_persistent_cache** made) {
  auto* tables = options->rep.table_factory->GetOptions<rocksdb::BlockBasedTableOptions>();
  if (tables == nullptr) return strdup("the tables have no blocks");
  rocksdb::PersistentCacheConfig config(rocksdb::Env::Default(), path, bytes, nullptr,
                                        buffer_bytes);
  config.cache_file_size = file_bytes;
  config.max_write_pipeline_backlog_size = queue_bytes;
  config.enable_direct_reads = direct;
  auto cache = std::make_shared<Counted>(config);
  const rocksdb::Status status = cache->Open();
  if (!status.ok()) return strdup(status.ToString().c_str());
  tables->persistent_cache = cache;
  *made = new thermocline_persistent_cache{std::move(cache)};
  return nullptr;
}

// Hits, misses, bytes written.
extern "C" void thermocline_persistent_cache_counts(const thermocline_persistent_cache* cache,
                                                    uint64_t counts[3]) {
  const auto tiers = cache->cache->Stats();
  if (!tiers.empty()) {
    counts[0] = Figure(tiers.back(), "cache_hits");
    counts[1] = Figure(tiers.back(), "cache_misses");
  }
  counts[2] = cache->cache->written_bytes();
}

// The tables keep theirs.
extern "C" void thermocline_persistent_cache_free(thermocline_persistent_cache* cache) {
  delete cache;
}
