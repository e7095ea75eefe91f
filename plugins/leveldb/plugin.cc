// How LevelDB finds the plugin: the functions of thermocline_leveldb.h, and that which the preload
// shim calls for leveldb::Env::Default().
//
// Threads: any.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "env.h"
#include "leveldb/env.h"
#include "thermocline_leveldb.h"

// As LevelDB's C interface has it.
struct leveldb_env_t {
  leveldb::Env* rep;
  bool is_default;
};

namespace thermocline::of_leveldb {
namespace {

using leveldb::Env;

// What the shim says is the host's own environment: with it, Env::Default() is one over tiers.
std::atomic<Env*> host_below_shim{nullptr};

Env* HostEnv() {
  Env* const env = Env::Default();
  Env* const host = host_below_shim.load();
  return host != nullptr ? host : env;
}

std::unique_ptr<Env> MakeEnv(const std::string& uri, std::string* why) {
  std::shared_ptr<Tiers> tiers = Tiers::Open(uri, why);
  if (tiers == nullptr) return nullptr;
  return std::make_unique<TieredEnv>(HostEnv(), std::move(tiers));
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

// In place of an environment whose URI was refused: no database is opened on the wrong disk.
class RefusingEnv : public leveldb::EnvWrapper {
 public:
  RefusingEnv(Env* host, const std::string& why) : EnvWrapper(host), why_(why) {}

  leveldb::Status LockFile(const std::string&, leveldb::FileLock**) override {
    return leveldb::Status::InvalidArgument(why_);
  }
  leveldb::Status NewWritableFile(const std::string&, leveldb::WritableFile**) override {
    return leveldb::Status::InvalidArgument(why_);
  }

 private:
  const std::string why_;
};

Env* MakeDefault(Env* host, const std::string& uri) {
  std::string why;
  std::shared_ptr<Tiers> tiers = Tiers::Open(uri, &why);
  if (tiers != nullptr) return new TieredEnv(host, std::move(tiers));
  return new RefusingEnv(host, "THERMOCLINE_LEVELDB_URI: " + why);
}

}  // namespace
}  // namespace thermocline::of_leveldb

leveldb::Status thermocline_leveldb_attach(leveldb::Options* options, const std::string& uri) {
  std::string why;
  leveldb::Env* const env = thermocline::of_leveldb::SharedEnv(uri, &why);
  if (env == nullptr) return leveldb::Status::InvalidArgument(why);
  options->env = env;
  return leveldb::Status::OK();
}

extern "C" leveldb_env_t* thermocline_leveldb_env(const char* uri) {
  std::string why;
  std::unique_ptr<leveldb::Env> env =
      thermocline::of_leveldb::MakeEnv(uri != nullptr ? uri : "", &why);
  if (env == nullptr) {
    std::fprintf(stderr, "thermocline: %s\n", why.c_str());
    return nullptr;
  }
  return new leveldb_env_t{env.release(), false};
}

extern "C" char* thermocline_leveldb_stats(const char* uri) {
  std::string why, json;
  const auto tiers = thermocline::Tiers::Open(uri != nullptr ? uri : "", &why);
  return tiers != nullptr && tiers->Stats(&json).IsOk() ? strdup(json.c_str()) : nullptr;
}

// For the preload shim: what leveldb::Env::Default() is from now on, once and for all. `host` is
// what it was.
extern "C" void* thermocline_leveldb_default(void* host, const char* uri) {
  using namespace thermocline::of_leveldb;
  host_below_shim.store(static_cast<leveldb::Env*>(host));
  static leveldb::Env* const env = MakeDefault(static_cast<leveldb::Env*>(host), uri);
  return env;
}
