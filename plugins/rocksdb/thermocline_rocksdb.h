// RocksDB over storage tiers, for programs of their own. Programs that are not changed need no
// header: docs/hosts/rocksdb.md.
//
//   rocksdb::Options options;
//   rocksdb::Status status = thermocline_rocksdb_attach(&options, "thermocline://?tier=...");
//   rocksdb::DB::Open(options, "/var/lib/app/db", &db);
//
// The environment of a URI lives as long as the process.
//
// Threads: any.
#pragma once

#ifdef __cplusplus
#include <string>

#include "rocksdb/options.h"
#include "rocksdb/status.h"

// Sets the environment, and a listener which knows the level of each table when it is created.
rocksdb::Status thermocline_rocksdb_attach(rocksdb::DBOptions* options, const std::string& uri);

extern "C" {
#endif

typedef struct rocksdb_env_t rocksdb_env_t;
typedef struct rocksdb_options_t rocksdb_options_t;

// For rocksdb_options_set_env, or Env::from_raw of the Rust crate. The caller gives it back to
// rocksdb_env_destroy once no database uses it. NULL where the URI is refused; the reason is
// printed to the standard error stream.
rocksdb_env_t* thermocline_rocksdb_env(const char* uri);

// thermocline_rocksdb_attach for programs in C. Returns NULL, or one line of text which goes back
// to rocksdb_free.
char* thermocline_rocksdb_attach_options(rocksdb_options_t* options, const char* uri);

// What lies where and what moved, of all directories over the tiers of the URI: JSON, which goes
// back to rocksdb_free. NULL where the URI is refused.
char* thermocline_rocksdb_stats(const char* uri);

#ifdef __cplusplus
}
#endif
