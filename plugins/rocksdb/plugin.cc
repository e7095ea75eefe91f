// How RocksDB finds the plugin: factories for thermocline:// in the default library of objects,
// registered when this library is loaded, and the functions of thermocline_rocksdb.h.
//
// THERMOCLINE_WITHOUT_OPTIONS: for Speedb, whose headers are not at hand. What is compiled then uses
// files and environments, which were compared with its library, and no options or listeners, which
// it has changed (docs/decisions/0106-speedb.md).
//
// Threads: any.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "../tiers/level_context.h"
#include "file_system.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "rocksdb/options.h"
#include "rocksdb/utilities/object_registry.h"
#include "thermocline_rocksdb.h"

// As RocksDB's C interface has them.
struct rocksdb_env_t {
  rocksdb::Env* rep;
  bool is_default;
};
#ifndef THERMOCLINE_WITHOUT_OPTIONS
struct rocksdb_options_t {
  rocksdb::Options rep;
};
#else
// As the library has them; how long a request is shows in its loop over several.
static_assert(sizeof(rocksdb::FSReadRequest) == 96);
static_assert(sizeof(rocksdb::FileOptions) == 152);
static_assert(sizeof(rocksdb::IOOptions) == 88);
static_assert(sizeof(rocksdb::IOStatus) == 16);
static_assert(sizeof(std::string) == sizeof(void*), "the ABI of strings before C++11");
#endif

namespace thermocline {
namespace {

using rocksdb::Env;
using rocksdb::FileSystem;
using rocksdb::ObjectLibrary;

#ifndef THERMOCLINE_WITHOUT_OPTIONS
// Sets the level that the thread's tables are for.
class LevelListener : public rocksdb::EventListener {
 public:
  const char* Name() const override { return "ThermoclineLevels"; }

  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override {
    BeginJob(0, Origin::kFlush);
  }
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { EndJob(); }
  void OnSubcompactionBegin(const rocksdb::SubcompactionJobInfo& job) override {
    BeginJob(job.output_level, Origin::kCompaction);
  }
  void OnSubcompactionCompleted(const rocksdb::SubcompactionJobInfo&) override { EndJob(); }
};
#endif

// A file system that the registry's owner shares already cannot be given to a unique_ptr: a
// wrapper of its own is, over the same tiers.
FileSystem* MakeFileSystem(const std::string& uri, std::unique_ptr<FileSystem>* guard,
                           std::string* why) {
  std::shared_ptr<Tiers> tiers = Tiers::Open(uri, why);
  if (tiers == nullptr) return nullptr;
  guard->reset(new TieredFileSystem(FileSystem::Default(), std::move(tiers)));
  return guard->get();
}

std::unique_ptr<Env> MakeEnv(const std::string& uri, std::string* why) {
  std::shared_ptr<FileSystem> files = TieredFileSystem::Open(uri, why);
  return files == nullptr ? nullptr : rocksdb::NewCompositeEnv(files);
}

// One for each URI, never destroyed: options hold a plain pointer.
Env* SharedEnv(const std::string& uri, std::string* why) {
  static auto* const lock = new std::mutex;
  static auto* const environments = new std::map<std::string, std::unique_ptr<Env>>;
  const std::lock_guard<std::mutex> guard(*lock);
  std::unique_ptr<Env>& env = (*environments)[uri];
  if (env == nullptr) env = MakeEnv(uri, why);
  return env.get();
}

ObjectLibrary::PatternEntry Scheme() {
  return ObjectLibrary::PatternEntry("thermocline", false).AddSeparator("://", false);
}

bool Register() {
  const std::shared_ptr<ObjectLibrary>& library = ObjectLibrary::Default();
  library->AddFactory<FileSystem>(Scheme(), MakeFileSystem);
  // Without a guard: options that are read from text (Java's properties) hold a plain pointer.
  library->AddFactory<Env>(
      Scheme(), [](const std::string& uri, std::unique_ptr<Env>*, std::string* why) {
        return SharedEnv(uri, why);
      });
  return true;
}

[[maybe_unused]] const bool is_registered = Register();

}  // namespace
}  // namespace thermocline

#ifndef THERMOCLINE_WITHOUT_OPTIONS
rocksdb::Status thermocline_rocksdb_attach(rocksdb::DBOptions* options, const std::string& uri) {
  std::string why;
  rocksdb::Env* const env = thermocline::SharedEnv(uri, &why);
  if (env == nullptr) return rocksdb::Status::InvalidArgument(why);
  options->env = env;
  options->listeners.push_back(std::make_shared<thermocline::LevelListener>());
  return rocksdb::Status::OK();
}

extern "C" char* thermocline_rocksdb_attach_options(rocksdb_options_t* options, const char* uri) {
  const rocksdb::Status status =
      thermocline_rocksdb_attach(&options->rep, uri != nullptr ? uri : "");
  return status.ok() ? nullptr : strdup(status.ToString().c_str());
}
#endif

extern "C" rocksdb_env_t* thermocline_rocksdb_env(const char* uri) {
  std::string why;
  std::unique_ptr<rocksdb::Env> env = thermocline::MakeEnv(uri != nullptr ? uri : "", &why);
  if (env == nullptr) {
    std::fprintf(stderr, "thermocline: %s\n", why.c_str());
    return nullptr;
  }
  return new rocksdb_env_t{env.release(), false};
}

extern "C" char* thermocline_rocksdb_stats(const char* uri) {
  std::string why, json;
  const auto tiers = thermocline::Tiers::Open(uri != nullptr ? uri : "", &why);
  return tiers != nullptr && tiers->Stats(&json).IsOk() ? strdup(json.c_str()) : nullptr;
}
