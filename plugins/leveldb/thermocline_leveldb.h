// LevelDB over storage tiers, for programs of their own. Programs that are not changed need no
// header: docs/hosts/leveldb.md.
//
//   leveldb::Options options;
//   leveldb::Status status = thermocline_leveldb_attach(&options, "thermocline://?tier=...");
//   leveldb::DB::Open(options, "/var/lib/app/db", &db);
//
// Threads: any.
#pragma once

#ifdef __cplusplus
#include <string>

#include "leveldb/options.h"
#include "leveldb/status.h"

// Sets the environment, which lives as long as the process.
leveldb::Status thermocline_leveldb_attach(leveldb::Options* options, const std::string& uri);

extern "C" {
#endif

typedef struct leveldb_env_t leveldb_env_t;

// For leveldb_options_set_env. The caller gives it back to leveldb_env_destroy once no database
// uses it. NULL where the URI is refused; the reason is printed to the standard error stream.
leveldb_env_t* thermocline_leveldb_env(const char* uri);

// What lies where and what moved, of all directories over the tiers of the URI: JSON, which goes
// back to leveldb_free. NULL where the URI is refused.
char* thermocline_leveldb_stats(const char* uri);

#ifdef __cplusplus
}
#endif
