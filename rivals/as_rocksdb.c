// Speedb under RocksDB's name: this library needs Speedb's, and has besides what the bindings of
// RocksDB 11.8 are linked with and Speedb lacks. `cargo xtask plugins fetch` builds it.
//
// Nothing here is to be called: rivals/src/rocksdb/library.rs does without. A call ends the process
// with the function's name.
#include <stdio.h>
#include <stdlib.h>

#define LACKS(name)                                \
  void name(void) {                                \
    fprintf(stderr, "Speedb lacks %s\n", #name);   \
    abort();                                       \
  }

LACKS(rocksdb_wait_for_compact)
LACKS(rocksdb_wait_for_compact_options_create)
LACKS(rocksdb_wait_for_compact_options_destroy)
LACKS(rocksdb_write_buffer_manager_destroy)

// Of RocksDB's C++ (foreign/persistent_cache.cc): functions that give text, which in Speedb's library
// is of the string ABI before C++11's.
#define LACKS_CXX(name, symbol) \
  void name(void) __asm__(symbol); \
  LACKS(name)

LACKS_CXX(BlockCacheTierStats, "_ZN7rocksdb14BlockCacheTier5StatsB5cxx11Ev")
LACKS_CXX(PersistentCacheTierPrintStats, "_ZN7rocksdb19PersistentCacheTier10PrintStatsB5cxx11Ev")
LACKS_CXX(PersistentCacheConfigToString, "_ZNK7rocksdb21PersistentCacheConfig8ToStringB5cxx11Ev")
LACKS_CXX(StatusToString, "_ZNK7rocksdb6Status8ToStringB5cxx11Ev")
