// A program of its own over tiers: attaches the plugin and calls what tools do not.
//
//   host_test calls DIR URI      checkpoint, backup, ingestion, DestroyDB; ends with nothing left
//   host_test moves DIR URI      files move while they are open: reads follow, old ones are closed
//   host_test copies DIR URI     tables that are read much are read at copies on a faster tier
//   host_test extents DIR URI    records that are read again come from parts on a faster tier
//   host_test room DIR URI FAST  the devices of both tiers fill up, and have room again
//   host_test from-c DIR URI     by the C interface, as the crate for Rust does
//   host_test write DIR URI      synced writes until it is killed; prints what it was told of
//   host_test verify DIR URI N   all numbers below N are there
//
// Exit status 0 when all passed. `cargo xtask plugins test` compiles and runs it.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rocksdb/c.h"
#include "rocksdb/db.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/backup_engine.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/version.h"
#include "rocksdb/write_batch.h"
#include "thermocline_rocksdb.h"

namespace {

using rocksdb::DB;
using rocksdb::Options;
using rocksdb::Status;

constexpr int kRecords = 20000;
constexpr int kIngested = 500;

void Check(const Status& status, const std::string& what) {
  if (status.ok()) return;
  std::fprintf(stderr, "host_test: %s: %s\n", what.c_str(), status.ToString().c_str());
  std::exit(1);
}

std::string Key(int number) {
  char key[16];
  std::snprintf(key, sizeof(key), "%08d", number);
  return key;
}

std::string Value(int number) {
  std::string value;
  for (unsigned at = 0; value.size() < 500; at++) {
    value += std::to_string((static_cast<unsigned>(number) + at) * 2654435761u);
  }
  return value;
}

Options OptionsOver(const std::string& uri) {
  Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 1 << 20;
  options.target_file_size_base = 1 << 20;
  options.max_bytes_for_level_base = 4 << 20;
  options.max_bytes_for_level_multiplier = 4;
  options.max_subcompactions = 2;
  options.compression = rocksdb::kNoCompression;
  Check(thermocline_rocksdb_attach(&options, uri), "attach");
  return options;
}

std::unique_ptr<DB> Open(const Options& options, const std::string& directory) {
#if ROCKSDB_MAJOR >= 11
  std::unique_ptr<DB> db;
  Check(DB::Open(options, directory, &db), "open " + directory);
  return db;
#else
  DB* db = nullptr;
  Check(DB::Open(options, directory, &db), "open " + directory);
  return std::unique_ptr<DB>(db);
#endif
}

void Close(std::unique_ptr<DB> db) { Check(db->Close(), "close"); }

void Expect(DB* db, int first, int end) {
  std::string value;
  for (int number = first; number < end; number++) {
    Check(db->Get({}, Key(number), &value), "get " + Key(number));
    if (value != Value(number)) Check(Status::Corruption(Key(number)), "another value");
  }
}

void Fill(DB* db) {
  // Two rounds in another order, so that tables overlap and compactions rewrite them.
  for (int round = 0; round < 2; round++) {
    for (int at = 0; at < kRecords; at++) {
      const int number = at * 7919 % kRecords;
      Check(db->Put({}, Key(number), Value(number)), "put");
    }
  }
  Check(db->Flush({}), "flush");
}

void TryCheckpoint(DB* db, const Options& options, const std::string& directory) {
  rocksdb::Checkpoint* made = nullptr;
  Check(rocksdb::Checkpoint::Create(db, &made), "checkpoint");
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  Check(checkpoint->CreateCheckpoint(directory), "checkpoint to " + directory);
  std::unique_ptr<DB> copy = Open(options, directory);
  Expect(copy.get(), 0, kRecords);
  // What the copy changes is not the original's.
  Check(copy->Put({}, Key(0), "changed"), "put in the checkpoint");
  Check(copy->CompactRange({}, nullptr, nullptr), "compact the checkpoint");
  Close(std::move(copy));
  Expect(db, 0, kRecords);
  Check(rocksdb::DestroyDB(directory, options), "destroy the checkpoint");
  std::puts("host_test: checkpoint: opened, changed, destroyed; the original is as it was");
}

void TryBackup(DB* db, const Options& options, const std::string& directory) {
  const std::string backups = directory + "-backups", restored = directory + "-restored";
  const rocksdb::BackupEngineOptions settings(backups, options.env);
  rocksdb::BackupEngine* made = nullptr;
  Check(rocksdb::BackupEngine::Open(settings, options.env, &made), "open backups");
  std::unique_ptr<rocksdb::BackupEngine> engine(made);
  Check(engine->CreateNewBackup(db, true), "back up");
  Check(engine->VerifyBackup(1, true), "verify the backup");
  Check(engine->RestoreDBFromLatestBackup(restored, restored), "restore");
  Check(engine->DeleteBackup(1), "delete the backup");
  engine.reset();
  std::unique_ptr<DB> copy = Open(options, restored);
  Expect(copy.get(), 0, kRecords);
  Close(std::move(copy));
  Check(rocksdb::DestroyDB(restored, options), "destroy what was restored");
  std::puts("host_test: backup: verified, restored, opened");
}

void TryIngestion(DB* db, const Options& options, const std::string& directory) {
  for (const bool moves : {false, true}) {
    const int first = kRecords + (moves ? kIngested : 0);
    const std::string path = directory + "-ingested" + (moves ? "-moved.sst" : ".sst");
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options);
    Check(writer.Open(path), "open " + path);
    for (int number = first; number < first + kIngested; number++) {
      Check(writer.Put(Key(number), Value(number)), "put in a table");
    }
    Check(writer.Finish(), "finish a table");
    rocksdb::IngestExternalFileOptions how;
    how.move_files = moves;
    Check(db->IngestExternalFile({path}, how), moves ? "ingest by moving" : "ingest by copying");
    if (!moves) Check(options.env->DeleteFile(path), "delete what was ingested");
  }
  Expect(db, 0, kRecords + 2 * kIngested);
  std::puts("host_test: ingestion: by copying, by moving");
}

// Two databases over one file system, both closed before either is deleted: the first one's log of
// information is closed when the second gives its directory back.
void ClosedTogether(const Options& options, const std::string& directory) {
  const std::string beside = directory + "-beside";
  std::unique_ptr<DB> first = Open(options, beside), second = Open(options, directory);
  Fill(first.get());
  Check(first->Close(), "close the first");
  Check(second->Close(), "close the second");
  first.reset();
  second.reset();
  for (const std::string& closed : {beside, directory}) {
    Check(rocksdb::DestroyDB(closed, options), "destroy " + closed);
  }
}

int Calls(const std::string& directory, const std::string& uri) {
  const Options options = OptionsOver(uri);
  std::unique_ptr<DB> db = Open(options, directory);
  Fill(db.get());
  TryCheckpoint(db.get(), options, directory + "-checkpoint");
  TryBackup(db.get(), options, directory);
  TryIngestion(db.get(), options, directory);
  Check(db->CompactRange({}, nullptr, nullptr), "compact");
  Close(std::move(db));
  db = Open(options, directory);
  Expect(db.get(), 0, kRecords + 2 * kIngested);
  Close(std::move(db));
  Check(rocksdb::DestroyDB(directory, options), "destroy");
  std::puts("host_test: reopened, destroyed");
  ClosedTogether(options, directory);
  return 0;
}

// Files of `directory`, and those on its tiers, that are open here and have no name any more.
int DeletedFilesOpen(const std::string& directory) {
  int count = 0;
  DIR* const open = opendir("/proc/self/fd");
  while (const dirent* entry = open != nullptr ? readdir(open) : nullptr) {
    char target[4096];
    const std::string name = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t len = readlink(name.c_str(), target, sizeof(target));
    const std::string path(target, len > 0 ? static_cast<size_t>(len) : 0);
    const std::string parent = directory.substr(0, directory.rfind('/'));
    const bool is_ours = path.compare(0, parent.size(), parent) == 0;
    if (is_ours && path.find("(deleted)") != std::string::npos) count++;
  }
  if (open != nullptr) closedir(open);
  return count;
}

// A figure of what happened, -1 where there is none.
int Figure(const std::string& uri, const std::string& name) {
  char* const json = thermocline_rocksdb_stats(uri.c_str());
  const std::string quoted = '"' + name + "\":";
  const char* const found = json != nullptr ? std::strstr(json, quoted.c_str()) : nullptr;
  const int figure = found != nullptr ? std::atoi(found + quoted.size()) : -1;
  std::free(json);
  return figure;
}

// Waits for the first moves, and then until there were none for a second; a minute at most.
int WaitForMoves(const std::string& uri) {
  int moved = 0, same = 0;
  for (int round = 0; round < 600 && same < 10; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int now = Figure(uri, "moved_by_level");
    same = now > 0 && now == moved ? same + 1 : 0;
    moved = now;
  }
  return moved;
}

// Records in order make tables that go down level by level without being written again.
int Moves(const std::string& directory, const std::string& uri) {
  Options options = OptionsOver(uri);
  rocksdb::BlockBasedTableOptions tables;
  tables.no_block_cache = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(tables));
  std::unique_ptr<DB> db = Open(options, directory);
  for (int number = 0; number < kRecords; number++) {
    Check(db->Put({}, Key(number), Value(number)), "put");
    // Every table is open before it moves.
    if (number % 1000 == 999) Expect(db.get(), number - 999, number);
  }
  Check(db->Flush({}), "flush");
  const int moved = WaitForMoves(uri);
  if (moved <= 0) Check(Status::Aborted("no file moved"), "moves");
  // Tables that are not read follow before the next file is made.
  Check(db->Put({}, Key(0), Value(0)), "put again");
  Check(db->Flush({}), "flush again");
  const int after = DeletedFilesOpen(directory);
  if (after > 0) Check(Status::Aborted(std::to_string(after)), "files that moved are still open");
  Expect(db.get(), 0, kRecords);
  Close(std::move(db));
  std::printf("host_test: %d files moved while they were open; readers followed\n", moved);
  return 0;
}

// Tables on the fast tier that are open here; `directory` has them all at home.
int FastTablesOpen(const std::string& directory) {
  int count = 0;
  const std::string fast = directory.substr(0, directory.rfind('/')) + "/fast/";
  DIR* const open = opendir("/proc/self/fd");
  while (const dirent* entry = open != nullptr ? readdir(open) : nullptr) {
    char target[4096];
    const std::string name = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t len = readlink(name.c_str(), target, sizeof(target));
    const std::string path(target, len > 0 ? static_cast<size_t>(len) : 0);
    const bool is_fast = path.compare(0, fast.size(), fast) == 0;
    const bool is_there = path.find("(deleted)") == std::string::npos;
    if (is_fast && is_there && path.find(".sst") != std::string::npos) count++;
  }
  if (open != nullptr) closedir(open);
  return count;
}

// All tables are at home: what is open on the fast tier are copies.
int Copies(const std::string& directory, const std::string& uri) {
  Options options = OptionsOver(uri);
  rocksdb::BlockBasedTableOptions tables;
  tables.no_block_cache = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(tables));
  std::unique_ptr<DB> db = Open(options, directory);
  Fill(db.get());
  Check(db->CompactRange({}, nullptr, nullptr), "compact");
  // Copies are made each second, for the reads of the one before; a minute at most.
  int open = 0;
  for (int round = 0; round < 600 && open < 3; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Expect(db.get(), 0, kRecords);
    open = FastTablesOpen(directory);
  }
  const int copied = Figure(uri, "copied");
  if (open < 3) Check(Status::Aborted(std::to_string(open)), "copies that are open");
  // Tables that are rewritten take their copies along.
  Fill(db.get());
  Check(db->CompactRange({}, nullptr, nullptr), "compact");
  Expect(db.get(), 0, kRecords);
  Close(std::move(db));
  Check(rocksdb::DestroyDB(directory, options), "destroy");
  std::printf("host_test: %d copies were made, %d are read\n", copied, open);
  return 0;
}

// Scattered records, several at once.
void ExpectScattered(DB* db, int seed) {
  constexpr int kMany = 32;
  std::vector<std::string> names;
  std::vector<rocksdb::Slice> keys;
  for (int at = 0; at < kMany; at++) {
    names.push_back(Key(static_cast<int>((seed + at * int64_t{613}) % kRecords)));
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) keys.emplace_back(name);
  std::vector<rocksdb::PinnableSlice> values(kMany);
  std::vector<Status> statuses(kMany);
  db->MultiGet({}, db->DefaultColumnFamily(), kMany, keys.data(), values.data(), statuses.data(),
               true);
  for (int at = 0; at < kMany; at++) {
    Check(statuses[at], "multi get");
    const std::string expected = Value(std::atoi(names[at].c_str()));
    if (values[at] != expected) Check(Status::Corruption(names[at]), "another value");
  }
}

// All tables are at home, and read by several requests at once; again by direct reads, which begin
// with what the first ones left.
int Extents(const std::string& directory, const std::string& uri) {
  for (const bool is_direct : {false, true}) {
    Options options = OptionsOver(uri);
    options.use_direct_reads = is_direct;
    rocksdb::BlockBasedTableOptions tables;
    tables.no_block_cache = true;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(tables));
    std::unique_ptr<DB> db = Open(options, directory);
    if (!is_direct) {
      Fill(db.get());
      Check(db->CompactRange({}, nullptr, nullptr), "compact");
    }
    // A file's extents count once it was left alone for a second; a minute at most.
    int hits = 0;
    for (int round = 0; round < 600 && hits < 1000; round++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (int seed = 0; seed < 8; seed++) ExpectScattered(db.get(), seed);
      hits = Figure(uri, "hits");
    }
    if (hits < 1000) Check(Status::Aborted(std::to_string(hits)), "hits of extents");
    if (is_direct && Figure(uri, "adopted") <= 0) {
      Check(Status::Aborted("none"), "extents of the opening before");
    }
    Expect(db.get(), 0, kRecords);
    Close(std::move(db));
    std::printf("host_test: %d hits of extents%s\n", hits,
                is_direct ? ", by direct reads" : "");
    if (is_direct) Check(rocksdb::DestroyDB(directory, options), "destroy");
  }
  return 0;
}

void WriteBallast(const std::string& path) {
  const std::vector<char> bytes(6 << 20, 'x');
  FILE* const file = std::fopen(path.c_str(), "wb");
  const bool is_written =
      file != nullptr && std::fwrite(bytes.data(), bytes.size(), 1, file) == 1;
  if (file == nullptr || std::fclose(file) != 0 || !is_written) {
    Check(Status::IOError(path), "ballast");
  }
}

// What others have on both devices goes when the database found them full.
int Room(const std::string& directory, const std::string& uri, const std::string& fast) {
  const Options options = OptionsOver(uri);
  std::unique_ptr<DB> db = Open(options, directory);
  const std::string ballast[] = {fast + "/ballast", directory + "/ballast"};
  for (const std::string& path : ballast) WriteBallast(path);
  int number = 0;
  Status status;
  while (number < 1000000 && status.ok()) {
    status = db->Put({}, Key(number), Value(number));
    if (status.ok()) number++;
  }
  if (!status.IsNoSpace()) Check(Status::Aborted(status.ToString()), "full devices were not told");
  for (const std::string& path : ballast) unlink(path.c_str());
  // The host looks for room every five seconds; a minute at most.
  for (int round = 0; round < 600 && !status.ok(); round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = db->Put({}, Key(number), Value(number));
  }
  Check(status, "put once there is room");
  const int end = number + 1;
  Check(db->Flush({}), "flush once there is room");
  Expect(db.get(), 0, end);
  Close(std::move(db));
  db = Open(options, directory);
  Expect(db.get(), 0, end);
  Close(std::move(db));
  std::printf("host_test: full after %d records; went on by itself once there was room\n", number);
  return 0;
}

int FromC(const std::string& directory, const std::string& uri) {
  rocksdb_env_t* const env = thermocline_rocksdb_env(uri.c_str());
  if (env == nullptr) Check(Status::InvalidArgument(uri), "an environment for C");
  rocksdb_options_t* const options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_env(options, env);
  char* why = nullptr;
  rocksdb_t* const db = rocksdb_open(options, directory.c_str(), &why);
  rocksdb_writeoptions_t* const writes = rocksdb_writeoptions_create();
  rocksdb_readoptions_t* const reads = rocksdb_readoptions_create();
  size_t len = 0;
  char* value = nullptr;
  if (why == nullptr) rocksdb_put(db, writes, "water", 5, "warm", 4, &why);
  if (why == nullptr) value = rocksdb_get(db, reads, "water", 5, &len, &why);
  if (why != nullptr) Check(Status::IOError(why), "by the C interface");
  if (std::string(value, len) != "warm") Check(Status::Corruption("water"), "another value");
  rocksdb_free(value);
  rocksdb_readoptions_destroy(reads);
  rocksdb_writeoptions_destroy(writes);
  rocksdb_close(db);
  rocksdb_destroy_db(options, directory.c_str(), &why);
  if (why != nullptr) Check(Status::IOError(why), "destroy by the C interface");
  rocksdb_options_destroy(options);
  rocksdb_env_destroy(env);
  std::puts("host_test: from C: opened, destroyed");
  return 0;
}

int WriteUntilKilled(const std::string& directory, const std::string& uri) {
  std::unique_ptr<DB> db = Open(OptionsOver(uri), directory);
  rocksdb::WriteOptions synced;
  synced.sync = true;
  std::string value;
  int number = 0;
  while (db->Get({}, Key(number), &value).ok()) number++;
  // Long batches, so that kills meet flushes and compactions too.
  for (;;) {
    rocksdb::WriteBatch batch;
    for (int end = number + 200; number < end; number++) {
      const int earlier = static_cast<int>(number * int64_t{7919} % (number + 1));
      Check(batch.Put(Key(number), Value(number)), "batch");
      Check(batch.Put(Key(earlier), Value(earlier)), "batch");
    }
    Check(db->Write(synced, &batch), "write");
    std::printf("%d\n", number);
    std::fflush(stdout);
  }
}

int Verify(const std::string& directory, const std::string& uri, int end) {
  std::unique_ptr<DB> db = Open(OptionsOver(uri), directory);
  Expect(db.get(), 0, end);
  Close(std::move(db));
  std::printf("host_test: %d records are there\n", end);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 3 ? arguments[1] : "";
  if (what == "calls") return Calls(arguments[2], arguments[3]);
  if (what == "moves") return Moves(arguments[2], arguments[3]);
  if (what == "copies") return Copies(arguments[2], arguments[3]);
  if (what == "extents") return Extents(arguments[2], arguments[3]);
  if (what == "room" && count > 4) return Room(arguments[2], arguments[3], arguments[4]);
  if (what == "from-c") return FromC(arguments[2], arguments[3]);
  if (what == "write") return WriteUntilKilled(arguments[2], arguments[3]);
  if (what == "verify" && count > 4) {
    return Verify(arguments[2], arguments[3], std::atoi(arguments[4]));
  }
  std::fprintf(stderr,
               "host_test: say calls|moves|copies|extents|from-c|write DIR URI, room DIR URI "
               "FAST, or verify DIR URI N\n");
  return 2;
}
