// A program that attaches the plugin itself, in C++ and by LevelDB's C interface.
//
//   attach_test DIR URI       exit status 0 when all passed
//
// `cargo xtask plugins test` compiles and runs it, also under the shim.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "leveldb/c.h"
#include "leveldb/db.h"
#include "thermocline_leveldb.h"

namespace {

void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "attach_test: %s\n", what.c_str());
  std::exit(1);
}

void HasLog(const std::string& uri) {
  char* const stats = thermocline_leveldb_stats(uri.c_str());
  Require(stats != nullptr, "statistics");
  Require(std::strstr(stats, "\"is_log\":true") != nullptr, std::string("a log: ") + stats);
  leveldb_free(stats);
}

void InCpp(const std::string& directory, const std::string& uri) {
  leveldb::Options options;
  options.create_if_missing = true;
  leveldb::Status status = thermocline_leveldb_attach(&options, uri);
  leveldb::DB* opened = nullptr;
  if (status.ok()) status = leveldb::DB::Open(options, directory, &opened);
  const std::unique_ptr<leveldb::DB> db(opened);
  if (status.ok()) status = db->Put({}, "water", "warm");
  Require(status.ok(), status.ToString());
  HasLog(uri);
}

void InC(const std::string& directory, const std::string& uri) {
  leveldb_env_t* const env = thermocline_leveldb_env(uri.c_str());
  Require(env != nullptr, "an environment for C");
  leveldb_options_t* const options = leveldb_options_create();
  leveldb_options_set_env(options, env);
  char* why = nullptr;
  leveldb_t* const db = leveldb_open(options, directory.c_str(), &why);
  Require(why == nullptr, why != nullptr ? why : "");
  leveldb_readoptions_t* const reads = leveldb_readoptions_create();
  size_t len = 0;
  char* const value = leveldb_get(db, reads, "water", 5, &len, &why);
  Require(value != nullptr && std::string(value, len) == "warm", "the record is there in C");
  leveldb_free(value);
  leveldb_readoptions_destroy(reads);
  leveldb_close(db);
  leveldb_options_destroy(options);
  leveldb_env_destroy(env);
}

void Refused() {
  leveldb::Options options;
  const std::string wrong = "thermocline://?teir=/x:1GiB";
  const leveldb::Status status = thermocline_leveldb_attach(&options, wrong);
  Require(status.IsInvalidArgument(), "a wrong URI is refused");
  Require(status.ToString().find("teir") != std::string::npos, status.ToString());
}

}  // namespace

int main(int count, char** arguments) {
  Require(count == 3, "say attach_test DIR URI");
  InCpp(arguments[1], arguments[2]);
  InC(arguments[1], arguments[2]);
  Refused();
  std::puts("attach_test: attached in C++ and in C; a wrong URI is refused");
  return 0;
}
