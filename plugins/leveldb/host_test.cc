// A program that uses LevelDB and knows nothing of tiers. The shim puts it over them, or nothing
// does.
//
//   host_test fill DIR        records in two rounds, so that compactions rewrite them
//   host_test expect DIR      they are there: by key, and in order by a scan
//   host_test calls DIR       reuse of a log, repair, DestroyDB; ends with nothing left
//   host_test moves DIR       files move while they are open: reads follow, old ones are closed
//   host_test copies DIR      tables that are read much are read at copies on a faster tier
//   host_test again DIR       scattered records, read again and again for some seconds
//   host_test once DIR        these records, each read once
//   host_test room DIR FAST   the devices of both tiers fill up, and have room again
//   host_test write DIR       synced writes until it is killed; prints each number it was told of
//   host_test verify DIR N    all numbers below N are there
//
// Exit status 0 when all passed. `cargo xtask plugins test` compiles and runs it.
#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/write_batch.h"

namespace {

using leveldb::DB;
using leveldb::Options;
using leveldb::Status;

constexpr int kRecords = 20000;
// From one scattered record to the next: 20 KB, so that no extent has two of them.
constexpr int kApart = 40;
// Behind the path of a file in /proc that has no name any more.
constexpr const char* kDeleted = "(deleted)";

void Check(const Status& status, const std::string& what) {
  if (status.ok()) return;
  std::fprintf(stderr, "host_test: %s: %s\n", what.c_str(), status.ToString().c_str());
  std::exit(1);
}

void Require(bool holds, const std::string& what) {
  if (!holds) Check(Status::Corruption("it is not so"), what);
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

Options SmallTables() {
  Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 1 << 20;
  options.max_file_size = 1 << 20;
  options.compression = leveldb::kNoCompression;
  return options;
}

std::unique_ptr<DB> Open(const Options& options, const std::string& directory) {
  DB* db = nullptr;
  Check(DB::Open(options, directory, &db), "open " + directory);
  return std::unique_ptr<DB>(db);
}

void Expect(DB* db, int first, int end) {
  std::string value;
  for (int number = first; number < end; number++) {
    Check(db->Get({}, Key(number), &value), "get " + Key(number));
    Require(value == Value(number), "the value of " + Key(number));
  }
}

void ExpectInOrder(DB* db, int end) {
  const std::unique_ptr<leveldb::Iterator> scan(db->NewIterator({}));
  int number = 0;
  for (scan->SeekToFirst(); scan->Valid(); scan->Next(), number++) {
    Require(scan->key().ToString() == Key(number), "the scan's record " + Key(number));
    Require(scan->value().ToString() == Value(number), "the scan's value of " + Key(number));
  }
  Check(scan->status(), "scan");
  Require(number == end, "the scan has all records");
}

void Fill(DB* db) {
  for (int round = 0; round < 2; round++) {
    for (int at = 0; at < kRecords; at++) {
      const int number = at * 7919 % kRecords;
      Check(db->Put({}, Key(number), Value(number)), "put");
    }
  }
}

int FillNew(const std::string& directory) {
  Fill(Open(SmallTables(), directory).get());
  return 0;
}

int ExpectAll(const std::string& directory) {
  const std::unique_ptr<DB> db = Open(SmallTables(), directory);
  Expect(db.get(), 0, kRecords);
  ExpectInOrder(db.get(), kRecords);
  std::printf("host_test: %d records\n", kRecords);
  return 0;
}

int Calls(const std::string& directory) {
  Options options = SmallTables();
  options.reuse_logs = true;
  std::unique_ptr<DB> db = Open(options, directory);
  Fill(db.get());
  for (int round = 0; round < 3; round++) {
    Check(db->Put({}, Key(round), Value(round)), "put in a log that was used");
    db.reset();
    db = Open(options, directory);
  }
  ExpectInOrder(db.get(), kRecords);
  db->CompactRange(nullptr, nullptr);
  db.reset();
  Check(leveldb::RepairDB(directory, SmallTables()), "repair");
  db = Open(options, directory);
  ExpectInOrder(db.get(), kRecords);
  db.reset();
  // What a repair keeps of old MANIFESTs lies in a directory that DestroyDB does not know.
  leveldb::Env* const env = leveldb::Env::Default();
  const std::string lost = directory + "/lost";
  std::vector<std::string> names;
  Check(env->GetChildren(lost, &names), "list " + lost);
  for (const std::string& name : names) {
    if (name != "." && name != "..") Check(env->RemoveFile(lost + "/" + name), "remove " + name);
  }
  Check(env->RemoveDir(lost), "remove " + lost);
  Check(leveldb::DestroyDB(directory, options), "destroy");
  std::puts("host_test: a log used again, repaired, destroyed");
  return 0;
}

// Files that are open here or mapped, and whose text in /proc `counts`.
int OpenFiles(const std::function<bool(const std::string&)>& counts) {
  int count = 0;
  DIR* const open = opendir("/proc/self/fd");
  while (const dirent* entry = open != nullptr ? readdir(open) : nullptr) {
    char target[4096];
    const std::string name = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t len = readlink(name.c_str(), target, sizeof(target));
    if (counts(std::string(target, len > 0 ? static_cast<size_t>(len) : 0))) count++;
  }
  if (open != nullptr) closedir(open);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (counts(line)) count++;
  }
  return count;
}

bool Has(const std::string& text, const std::string& mark) {
  return text.find(mark) != std::string::npos;
}

// Tables that moved away from where they are open here.
int DeletedTablesOpen() {
  return OpenFiles(
      [](const std::string& text) { return Has(text, ".ldb") && Has(text, kDeleted); });
}

// Tables that are open here on the tier in DIR/../fast.
int FastTablesOpen(const std::string& directory) {
  const std::string fast = directory.substr(0, directory.rfind('/')) + "/fast/";
  return OpenFiles([&](const std::string& text) {
    return Has(text, fast) && Has(text, ".ldb") && !Has(text, kDeleted);
  });
}

// Records in order make tables that go down level by level without being written again. A scan that
// stands on a record keeps its bytes, and goes on where the table lies then.
int Moves(const std::string& directory) {
  std::unique_ptr<DB> db = Open(SmallTables(), directory);
  std::unique_ptr<leveldb::Iterator> scan;
  int before = 0;
  for (int number = 0; number < 2 * kRecords; number++) {
    Check(db->Put({}, Key(number), Value(number)), "put");
    if (number == kRecords / 2) {
      scan.reset(db->NewIterator({}));
      scan->SeekToFirst();
    }
    // Every table is open before it moves.
    if (number % 1000 != 999) continue;
    Expect(db.get(), number - 999, number);
    if (before == 0) before = DeletedTablesOpen();
  }
  for (int round = 0; round < 100 && before == 0; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    before = DeletedTablesOpen();
  }
  Require(before > 0, "a table that moved was open");
  // The last moves end. Tables that are not read follow before the next file is made.
  int after = before;
  for (int round = 0; round < 100 && after > 0; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int number = 0; number < 3000; number++) {
      Check(db->Put({}, Key(number), Value(number)), "put again");
    }
    after = DeletedTablesOpen();
  }
  Expect(db.get(), 0, 2 * kRecords);
  Require(after == 0, "no table that moved is open where it was");
  int met = 0;
  for (; scan->Valid(); scan->Next(), met++) {
    Require(scan->value().ToString() == Value(met), "the held scan's value of " + Key(met));
  }
  Check(scan->status(), "held scan");
  Require(met == kRecords / 2 + 1, "the held scan has the records of its moment");
  std::puts("host_test: tables moved while they were open; reads followed");
  return 0;
}

// All tables are at home: what is open on the fast tier are copies.
int Copies(const std::string& directory) {
  std::unique_ptr<DB> db = Open(SmallTables(), directory);
  Fill(db.get());
  db->CompactRange(nullptr, nullptr);
  // Copies are made each second, for the reads of the one before; a minute at most.
  int open = 0;
  for (int round = 0; round < 600 && open < 3; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Expect(db.get(), 0, kRecords);
    open = FastTablesOpen(directory);
  }
  Require(open >= 3, "copies are read");
  // Tables that are rewritten take their copies along.
  Fill(db.get());
  db->CompactRange(nullptr, nullptr);
  ExpectInOrder(db.get(), kRecords);
  db.reset();
  Check(leveldb::DestroyDB(directory, SmallTables()), "destroy");
  std::printf("host_test: %d copies are read\n", open);
  return 0;
}

// Scattered records, each read from its table: the host keeps no block.
int ReadScattered(const std::string& directory, int rounds) {
  const std::unique_ptr<leveldb::Cache> none(leveldb::NewLRUCache(0));
  Options options = SmallTables();
  options.block_cache = none.get();
  const std::unique_ptr<DB> db = Open(options, directory);
  // Extents of a table count a second after it was read first: here beside those records.
  for (int number = kApart / 2; number < kRecords; number += 10 * kApart) {
    Expect(db.get(), number, number + 1);
  }
  std::this_thread::sleep_for(std::chrono::seconds(3));
  for (int round = 0; round < rounds; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int number = 0; number < kRecords; number += kApart) Expect(db.get(), number, number + 1);
  }
  return 0;
}

void WriteBallast(const std::string& path) {
  const std::string bytes(6 << 20, 'x');
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  Require(file.good(), "ballast in " + path);
}

// What others have on both devices goes when the database found them full.
int Room(const std::string& directory, const std::string& fast) {
  std::unique_ptr<DB> db = Open(SmallTables(), directory);
  const std::string ballast[] = {fast + "/ballast", directory + "/ballast"};
  for (const std::string& path : ballast) WriteBallast(path);
  int number = 0;
  Status status;
  while (number < 1000000 && status.ok()) {
    status = db->Put({}, Key(number), Value(number));
    if (status.ok()) number++;
  }
  Require(status.IsIOError(), "full devices are told, not " + status.ToString());
  for (const std::string& path : ballast) unlink(path.c_str());
  // Room alone does not help: what failed stays the last write to its file.
  Require(!db->Put({}, Key(number), Value(number)).ok(), "it wants to be opened again");
  Expect(db.get(), 0, number);
  db.reset();
  db = Open(SmallTables(), directory);
  Expect(db.get(), 0, number);
  const int end = number + 100;
  for (; number < end; number++) Check(db->Put({}, Key(number), Value(number)), "put again");
  ExpectInOrder(db.get(), end);
  std::printf("host_test: full after %d records; went on once it was opened again\n", end - 100);
  return 0;
}

int WriteUntilKilled(const std::string& directory) {
  const std::unique_ptr<DB> db = Open(SmallTables(), directory);
  leveldb::WriteOptions synced;
  synced.sync = true;
  std::string value;
  int number = 0;
  while (db->Get({}, Key(number), &value).ok()) number++;
  // Long batches, so that kills meet flushes and compactions too.
  for (;;) {
    leveldb::WriteBatch batch;
    for (int end = number + 200; number < end; number++) {
      const int earlier = static_cast<int>(number * int64_t{7919} % (number + 1));
      batch.Put(Key(number), Value(number));
      batch.Put(Key(earlier), Value(earlier));
    }
    Check(db->Write(synced, &batch), "write");
    std::printf("%d\n", number);
    std::fflush(stdout);
  }
}

int Verify(const std::string& directory, int end) {
  const std::unique_ptr<DB> db = Open(SmallTables(), directory);
  Expect(db.get(), 0, end);
  std::printf("host_test: %d records are there\n", end);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 2 ? arguments[1] : "";
  if (what == "fill") return FillNew(arguments[2]);
  if (what == "expect") return ExpectAll(arguments[2]);
  if (what == "calls") return Calls(arguments[2]);
  if (what == "moves") return Moves(arguments[2]);
  if (what == "copies") return Copies(arguments[2]);
  if (what == "again") return ReadScattered(arguments[2], 30);
  if (what == "once") return ReadScattered(arguments[2], 1);
  if (what == "room" && count > 3) return Room(arguments[2], arguments[3]);
  if (what == "write") return WriteUntilKilled(arguments[2]);
  if (what == "verify" && count > 3) return Verify(arguments[2], std::atoi(arguments[3]));
  std::fprintf(stderr,
               "host_test: say fill|expect|calls|moves|copies|again|once|write DIR, room DIR FAST, "
               "or verify DIR N\n");
  return 2;
}
