/* The shim that is preloaded: opens the plugin where the process has RocksDB, and nothing elsewhere.
 *
 *   LD_PRELOAD=libthermocline_preload.so db_bench --fs_uri='thermocline://?tier=...'
 *
 * Why a shim: a preloaded plugin would keep processes without RocksDB (a shell that the program
 * starts) from running, since its symbols are missing there.
 *
 * 1. It needs nothing but the C library. Without RocksDB it changes nothing.
 * 2. The plugin lies beside it, named by the host's version: librocksdb_plugin-7.8.3.so.
 * 3. A thread that a job of the host starts works for that job: it inherits the job's level.
 *
 * Threads: the constructor runs before main; pthread_create any.
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

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static uint64_t (*plugin_context)(void);
static void (*plugin_enter)(uint64_t);

/* Writes the host's version; false where there is no RocksDB, or one of another ABI. */
static bool version_of_host(char *version, size_t room) {
  struct cxx_string (*version_of)(bool) = NULL;
  const char *const symbol = "_ZN7rocksdb23GetRocksVersionAsStringB5cxx11Eb";
  if (dlsym(RTLD_DEFAULT, "_ZN7rocksdb13ObjectLibrary7DefaultEv") == NULL) return false;
  *(void **)&version_of = dlsym(RTLD_DEFAULT, symbol);
  if (version_of == NULL) return false;
  struct cxx_string string = version_of(true);
  const bool is_within = string.len < sizeof(string.room.within);
  snprintf(version, room, "%s", is_within ? string.room.within : string.text);
  if (!is_within) free(string.text);
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

__attribute__((constructor)) static void open_plugin(void) {
  char version[64];
  char folder[PATH_MAX];
  char path[PATH_MAX + 128];
  if (!version_of_host(version, sizeof(version)) || !own_folder(folder)) return;
  snprintf(path, sizeof(path), "%s/librocksdb_plugin-%s.so", folder, version);
  void *const plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (plugin == NULL) {
    fprintf(stderr, "thermocline: RocksDB %s runs without tiers: %s\n", version, dlerror());
    return;
  }
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
