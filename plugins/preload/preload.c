/* The shim that is preloaded: opens the plugin where the process has RocksDB, Speedb or LevelDB,
 * and nothing elsewhere.
 *
 *   LD_PRELOAD=libthermocline_preload.so db_bench --fs_uri='thermocline://?tier=...'
 *   LD_PRELOAD=... THERMOCLINE_LEVELDB_URI='thermocline://?tier=...' program
 *
 * Why a shim: a preloaded plugin would keep processes without the host (a shell that the program
 * starts) from running, since its symbols are missing there.
 *
 * 1. It needs nothing but the C library. Without a host it changes nothing.
 * 2. The plugin lies beside it, named by the host's version: librocksdb_plugin-7.8.3.so.
 * 3. A thread that a job of RocksDB starts works for that job: it inherits the job's level.
 * 4. LevelDB has no registry: the shim answers in place of leveldb::Env::Default(), where the
 *    environment variable says over which tiers. Without it, the host's own function answers.
 *
 * Threads: the constructor runs before main; pthread_create and Env::Default any.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* std::string as functions built with libstdc++'s present ABI return it: short texts lie within. */
struct cxx_string {
  char *text;
  size_t len;
  union {
    char within[16];
    size_t capacity;
  } room;
};

/* As functions of the ABI before return it: a pointer to the text. What is not used makes it too
 * large for registers, in which no std::string is returned. */
struct old_cxx_string {
  char *text;
  void *not_used[2];
};

/* What a library says of its version, by either ABI. */
struct host {
  const char *plugin;
  const char *name;
  const char *version_of;
  const char *old_version_of;
};

/* Speedb first: it has RocksDB's functions besides its own. */
static const struct host rocksdb_hosts[] = {
    {"speedb", "Speedb", "_ZN7rocksdb24GetSpeedbVersionAsStringB5cxx11Eb",
     "_ZN7rocksdb24GetSpeedbVersionAsStringEb"},
    {"rocksdb", "RocksDB", "_ZN7rocksdb23GetRocksVersionAsStringB5cxx11Eb",
     "_ZN7rocksdb23GetRocksVersionAsStringEb"},
};

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static uint64_t (*plugin_context)(void);
static void (*plugin_enter)(uint64_t);

/* Speedb names the build behind its version: 2.8.0-? of a release. Any other is another version. */
static void without_tag(char *version) {
  char *const tag = strstr(version, "-?");
  if (tag != NULL && tag[2] == '\0') *tag = '\0';
}

/* Writes the host's version; false where the process does not have it. */
static bool version_of_host(const struct host *host, char *version, size_t room) {
  struct cxx_string (*version_of)(bool) = NULL;
  struct old_cxx_string (*old_version_of)(bool) = NULL;
  *(void **)&version_of = dlsym(RTLD_DEFAULT, host->version_of);
  if (version_of != NULL) {
    struct cxx_string string = version_of(true);
    const bool is_within = string.len < sizeof(string.room.within);
    snprintf(version, room, "%s", is_within ? string.room.within : string.text);
    if (!is_within) free(string.text);
    without_tag(version);
    return true;
  }
  *(void **)&old_version_of = dlsym(RTLD_DEFAULT, host->old_version_of);
  if (old_version_of == NULL) return false;
  /* Its text is shared and counted before its first letter; it is kept, once in a process. */
  snprintf(version, room, "%s", old_version_of(true).text);
  without_tag(version);
  return true;
}

/* The folder of this library. */
static bool own_folder(char folder[PATH_MAX]) {
  Dl_info own;
  if (dladdr((void *)&plugin_context, &own) == 0 || own.dli_fname == NULL) return false;
  if (realpath(own.dli_fname, folder) == NULL) return false;
  char *const slash = strrchr(folder, '/');
  if (slash == NULL) return false;
  *slash = '\0';
  return true;
}

/* The plugin of that name, or NULL with the reason on the standard error stream. */
static void *open_plugin(const char *plugin, const char *host, const char *version) {
  char folder[PATH_MAX];
  char path[PATH_MAX + 128];
  if (!own_folder(folder)) return NULL;
  snprintf(path, sizeof(path), "%s/lib%s_plugin-%s.so", folder, plugin, version);
  void *const opened = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (opened == NULL) {
    fprintf(stderr, "thermocline: %s %s runs without tiers: %s\n", host, version, dlerror());
  }
  return opened;
}

__attribute__((constructor)) static void look_for_rocksdb(void) {
  char version[64];
  if (dlsym(RTLD_DEFAULT, "_ZN7rocksdb13ObjectLibrary7DefaultEv") == NULL) return;
  const size_t count = sizeof(rocksdb_hosts) / sizeof(rocksdb_hosts[0]);
  const struct host *host = rocksdb_hosts;
  while (host != rocksdb_hosts + count && !version_of_host(host, version, sizeof(version))) host++;
  if (host == rocksdb_hosts + count) return;
  void *const plugin = open_plugin(host->plugin, host->name, version);
  if (plugin == NULL) return;
  *(void **)&plugin_context = dlsym(plugin, "thermocline_plugin_context");
  *(void **)&plugin_enter = dlsym(plugin, "thermocline_plugin_enter");
}

struct start {
  void *(*routine)(void *);
  void *argument;
  uint64_t context;
};

static void *run(void *given) {
  const struct start start = *(struct start *)given;
  free(given);
  plugin_enter(start.context);
  return start.routine(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
                   void *argument) {
  create_thread *create = NULL;
  *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
  const uint64_t context = plugin_context != NULL && plugin_enter != NULL ? plugin_context() : 0;
  struct start *const start = context != 0 ? malloc(sizeof(*start)) : NULL;
  if (start == NULL) return create(thread, attributes, routine, argument);
  *start = (struct start){routine, argument, context};
  const int failed = create(thread, attributes, run, start);
  if (failed != 0) free(start);
  return failed;
}

/* leveldb::Env::Default() of the host, and the environment that stands in its place. */
#define LEVELDB_DEFAULT _ZN7leveldb3Env7DefaultEv
#define LEVELDB_DEFAULT_NAME "_ZN7leveldb3Env7DefaultEv"

static pthread_once_t leveldb_looked_for = PTHREAD_ONCE_INIT;
/* Any of its callers will do. */
static const void *_Atomic leveldb_caller;
static void *leveldb_env;

/* Of the libraries behind this one, or of the one that calls, which may have been opened alone. */
static void *leveldb_symbol(const char *name) {
  Dl_info caller;
  void *const symbol = dlsym(RTLD_NEXT, name);
  if (symbol != NULL) return symbol;
  if (dladdr(leveldb_caller, &caller) == 0 || caller.dli_fname == NULL) return NULL;
  void *const library = dlopen(caller.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return library != NULL ? dlsym(library, name) : NULL;
}

static void look_for_leveldb(void) {
  void *(*host_default)(void) = NULL;
  int (*major_version)(void) = NULL;
  int (*minor_version)(void) = NULL;
  void *(*plugin_default)(void *, const char *) = NULL;
  char version[64] = "of an unknown version";
  *(void **)&host_default = leveldb_symbol(LEVELDB_DEFAULT_NAME);
  *(void **)&major_version = leveldb_symbol("leveldb_major_version");
  *(void **)&minor_version = leveldb_symbol("leveldb_minor_version");
  if (host_default == NULL) {
    fprintf(stderr, "thermocline: LevelDB's own Env::Default is not found\n");
    abort();
  }
  leveldb_env = host_default();
  const char *const uri = getenv("THERMOCLINE_LEVELDB_URI");
  if (uri == NULL) return;
  if (major_version != NULL && minor_version != NULL) {
    snprintf(version, sizeof(version), "%d.%d", major_version(), minor_version());
  }
  void *const plugin = open_plugin("leveldb", "LevelDB", version);
  if (plugin == NULL) return;
  *(void **)&plugin_default = dlsym(plugin, "thermocline_leveldb_default");
  if (plugin_default != NULL) leveldb_env = plugin_default(leveldb_env, uri);
}

void *LEVELDB_DEFAULT(void) {
  leveldb_caller = __builtin_return_address(0);
  pthread_once(&leveldb_looked_for, look_for_leveldb);
  return leveldb_env;
}
