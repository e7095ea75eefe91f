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
