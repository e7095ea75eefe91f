// Thermocline: storage tiers below other storage engines. What a plugin of a host calls (RocksDB,
// LevelDB, Speedb).
//
// This file is written from crates/capi by cbindgen. plugins/ has whole plugins.
//
// A host's directory stays an ordinary one. A file on a tier is a relative symbolic link in it. The
// host keeps its data path: this library chooses places, and the host opens, reads, writes and
// syncs its files there itself.
//
// - Paths are text with a zero behind, from the root or from the working directory. The names of
//   managed files are UTF-8.
// - What holds for every function of thermocline.h holds for these: ownership, inputs, answers,
//   `why`, places for answers, panics, threads.


#ifndef THERMOCLINE_TIERS_H
#define THERMOCLINE_TIERS_H

#include "thermocline.h"

// Its extension says what a file holds: `.log`, `.sst`, `.ldb`, `.blob`.
#define THERMOCLINE_HOLDS_BY_NAME -1

// A write-ahead log.
#define THERMOCLINE_HOLDS_LOG 0

// A sorted table.
#define THERMOCLINE_HOLDS_TABLE 1

// Values beside tables.
#define THERMOCLINE_HOLDS_BLOB 2

// Anything else: it stays the host's plain file.
#define THERMOCLINE_HOLDS_OTHER 3

// For a caller that waits.
#define THERMOCLINE_ORIGIN_FOREGROUND 0

// A memtable is written out.
#define THERMOCLINE_ORIGIN_FLUSH 1

// Tables are merged.
#define THERMOCLINE_ORIGIN_COMPACTION 2

// A table is taken in from outside.
#define THERMOCLINE_ORIGIN_INGEST 3

// An opening writes what was left to do.
#define THERMOCLINE_ORIGIN_RECOVERY 4

// Nothing is said of it.
#define THERMOCLINE_HEAT_NOT_SAID -1

// Often, as a table of level 0.
#define THERMOCLINE_HEAT_HOT 0

// As its level has it.
#define THERMOCLINE_HEAT_WARM 1

// Hardly ever, as a table of the deepest level.
#define THERMOCLINE_HEAT_COLD 2

// The host reads bytes of a file.
#define THERMOCLINE_USE_READ 0

// The host writes bytes of it.
#define THERMOCLINE_USE_WRITE 1

// The host makes it durable.
#define THERMOCLINE_USE_SYNC 2

// Names of a directory, as they were when it was listed.
//
// Threads: any number may call at once, except that `thermocline_entries_close` is the last call.
typedef struct thermocline_entries thermocline_entries;

// A managed file that is open, to be read or to be written. All openings of a file see the same
// place. While one to write is open, the file stays where it is, unless its device is full.
//
// Threads: any number may call at once, except that `thermocline_file_close` is the last call.
typedef struct thermocline_file thermocline_file;

// All directories of a host over the tiers of one URI. A directory is managed from the first log,
// table or blob that is made in it; all others, and all other files, are the host's plain ones.
//
// Threads: any number may call at once, except that `thermocline_tiers_close` is the last call.
typedef struct thermocline_tiers thermocline_tiers;

// What a new file is: all that decides where it goes. NULL says what its name says.
typedef struct {
  // `sizeof(thermocline_new_file)`.
  size_t size;
  // What it holds: THERMOCLINE_HOLDS_*; BY_NAME where its extension says it.
  int32_t holds;
  // The level of a table, 0 being the newest; -1 where it is not known.
  int32_t level;
  // Why it is made: THERMOCLINE_ORIGIN_*.
  int32_t origin;
  // How often it will be read: THERMOCLINE_HEAT_*. What is said here wins over the level.
  int32_t heat;
} thermocline_new_file;

// Bytes of a file that are wanted for a cache of extents: `len` at `offset`; none where `len` is
// 0.
typedef struct {
  // Bytes from the start of the file.
  uint64_t offset;
  // How many.
  uint64_t len;
  // What the library knows the file by.
  uint64_t file;
} thermocline_wanted;

// One name.
typedef struct {
  // With a zero behind; it stays until the entries are closed. NULL behind the last entry.
  const char *name;
  // Bytes of the file.
  uint64_t len;
} thermocline_entry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Gets ready to put directories over the tiers that `uri` names, fastest first. Nothing is opened
// yet.
//
// `thermocline://?tier=/mnt/nvme/app:20GiB&tier=home:400GiB` names tiers by PATH:CAPACITY; `home`
// is the directory itself. More settings: `placement=parallelism` (default), `room`, `fill_first`,
// `log_only`, `top_levels(N)`; `move_threads=auto` (default) or 1 to 16; `cache=off` (default) or
// `files`, which copies files that are read much to the next faster tier, or `extents`, which
// keeps parts of files that are read again on the fastest one, also over a restart;
// `hit_percent=90`, the share of reads that is enough for `files`, counted for `window=1s`;
// `profile=online` (default), which learns what devices can do from the host's traffic, or
// `fixed`; `cache_extent=8KiB`, a power of two up to 1 MiB, and `cache_size=4GiB`, what extents
// may take at most; `free_upper_percent=5` and `free_lower_percent=2`, the free shares of a tier
// below which its coldest files leave, and below which they do whatever else writes there;
// `unknown_level=6`, the level that a table counts with before the host has told one. For
// experiments `emulated=tlc-nvme` behind a tier makes it as slow as that device. In values `%XX`
// stands for a byte. `thermocline:///etc/app.toml` reads the same from a file.
//
// THERMOCLINE_INVALID names the part of the URI that is wrong.
thermocline_status thermocline_tiers_open(const char *uri, thermocline_tiers **tiers, char **why);

// Ends moves in the background; the one that is being made is finished. Takes the handle. Files
// that are open stay so until their own `_close`, and keep their directory's lock. NULL is none.
thermocline_status thermocline_tiers_close(thermocline_tiers *tiers, char **why);

// Makes a file at `path`, in place of what is there, and manages its directory from now on. The
// host opens the file at `thermocline_file_place`, truncating it, and writes its bytes there. It
// is being written until `thermocline_file_close`.
//
// `*file` is the caller's until `thermocline_file_close`; NULL with THERMOCLINE_OK where the file
// is the host's plain one, which the host makes itself at `path`. THERMOCLINE_OUT_OF_SPACE: every
// tier refused.
thermocline_status thermocline_tiers_create_file(const thermocline_tiers *tiers,
                                                 const char *path,
                                                 const thermocline_new_file *new_file,
                                                 thermocline_file **file,
                                                 char **why);

// Finds the file at `path`, to read it. `*file` as for `thermocline_tiers_create_file`; NULL with
// THERMOCLINE_OK for a plain file, which need not be there.
thermocline_status thermocline_tiers_open_file(const thermocline_tiers *tiers,
                                               const char *path,
                                               thermocline_file **file,
                                               char **why);

// Finds the file at `path`, before the host opens it at `thermocline_file_place` to write to it
// again: until `thermocline_file_close` it stays there, unless its device is full. `*file` as for
// `thermocline_tiers_open_file`.
thermocline_status thermocline_tiers_open_file_to_write(const thermocline_tiers *tiers,
                                                        const char *path,
                                                        thermocline_file **file,
                                                        char **why);

// Gives a file or a directory, managed or plain, another path, in place of the file that has it.
//
// THERMOCLINE_INVALID: the two directories have no device in common; copy the file.
thermocline_status thermocline_tiers_rename(const thermocline_tiers *tiers,
                                            const char *from,
                                            const char *to,
                                            char **why);

// Gives a file, managed or plain, a second path. Files that are linked must not be written again.
//
// THERMOCLINE_INVALID: the two directories have no device in common; copy the file.
thermocline_status thermocline_tiers_link(const thermocline_tiers *tiers,
                                          const char *from,
                                          const char *to,
                                          char **why);

// Removes a path, managed or plain, and its file.
thermocline_status thermocline_tiers_delete(const thermocline_tiers *tiers,
                                            const char *path,
                                            char **why);

// Cuts or extends a file, managed or plain, to `len` bytes.
thermocline_status thermocline_tiers_truncate(const thermocline_tiers *tiers,
                                              const char *path,
                                              uint64_t len,
                                              char **why);

// Lists what the host sees in a directory, managed or plain: links of managed files count as their
// files, what is of this library is left out. `*entries` is the caller's until
// `thermocline_entries_close`.
thermocline_status thermocline_tiers_list(const thermocline_tiers *tiers,
                                          const char *directory,
                                          thermocline_entries **entries,
                                          char **why);

// Makes all names of a directory, managed or plain, durable as they are now.
thermocline_status thermocline_tiers_sync_directory(const thermocline_tiers *tiers,
                                                    const char *directory,
                                                    char **why);

// Removes a directory, managed or plain, in which the host has nothing left, and what is of this
// library in it and on the tiers.
thermocline_status thermocline_tiers_remove_directory(const thermocline_tiers *tiers,
                                                      const char *directory,
                                                      char **why);

// Gives the lock of a managed directory back, once the last of its files is closed, so that
// another process may change it. The next change here takes it again.
thermocline_status thermocline_tiers_release_directory(const thermocline_tiers *tiers,
                                                       const char *directory,
                                                       char **why);

// The level of a table became known, or is another one now: it moves in the background where
// placement has it elsewhere. A path that is not there, or a plain one, is OK.
thermocline_status thermocline_tiers_set_level(const thermocline_tiers *tiers,
                                               const char *path,
                                               int32_t level,
                                               char **why);

// Bytes that files in a directory can still take: of a managed one on all its tiers, of a plain
// one on its file system.
thermocline_status thermocline_tiers_free_space(const thermocline_tiers *tiers,
                                                const char *directory,
                                                uint64_t *bytes,
                                                char **why);

// Figures of the managed directories as JSON, for `thermocline_free`: an array with one object for
// each, with its tiers, on each the files and bytes by level, and what was moved.
thermocline_status thermocline_tiers_stats(const thermocline_tiers *tiers, char **json, char **why);

// Gives out the path where the host opens the file now to read it: at a copy on a faster tier,
// where there is one. Nothing may be written there. Otherwise as `thermocline_file_place`.
thermocline_status thermocline_file_place_to_read(const thermocline_file *file,
                                                  char **place,
                                                  char **why);

// Gives out the path where the host opens the file now, as text with a zero behind, for
// `thermocline_free`.
thermocline_status thermocline_file_place(const thermocline_file *file, char **place, char **why);

// A number that goes up when either place changes. A host that reads compares it before each read,
// and opens the new place where it differs; what is being read at the old one stays readable.
//
// `file` must not be NULL. Costs a load from memory.
uint64_t thermocline_file_epoch(const thermocline_file *file);

// Where the number of `thermocline_file_epoch` is, for a host that loads it itself (atomically,
// with acquire). There as long as the handle is. `file` must not be NULL.
const uint64_t *thermocline_file_epoch_address(const thermocline_file *file);

// The host has read from the file, so that it stays longer on its tier. `file` must not be NULL.
// Costs additions to counters that all readers of the file share: once in a while is enough.
void thermocline_file_was_read(const thermocline_file *file);

// As `thermocline_file_was_read`, for so many reads since the call before.
void thermocline_file_was_read_times(const thermocline_file *file, uint64_t times);

// What offsets, lengths and buffers of the host's direct I/O have to be multiples of, wherever the
// file moves: the largest block of the tiers' devices, a power of two. `file` must not be NULL.
size_t thermocline_file_direct_unit(const thermocline_file *file);

// Extents are kept of the file (`cache=extents`), as long as the handle lives: where they are not,
// the host need not ask for them. `file` must not be NULL.
bool thermocline_file_keeps_extents(const thermocline_file *file);

// Reads up to `len` bytes at `offset` into `to` from extents on the fastest tier
// (`cache=extents`), if all of them are there. `epoch` is that of the place that the host has
// open. Answers how many bytes were read, fewer than `len` at the end of the file alone, or -1:
// the host reads them at the place. Where `wanted` has a length then, the host reads these bytes
// in their stead, which contain them, and gives them to `thermocline_file_fill`.
//
// `file` and `wanted` must not be NULL. Costs one test where no extents are kept.
int64_t thermocline_file_read_cached(const thermocline_file *file,
                                     uint64_t epoch,
                                     uint64_t offset,
                                     char *to,
                                     size_t len,
                                     thermocline_wanted *wanted);

// Gives the `len` bytes that `thermocline_file_read_cached` wanted, as they were read at the place
// of `epoch`. They are copied, or dropped. No pointer may be NULL.
void thermocline_file_fill(const thermocline_file *file,
                           uint64_t epoch,
                           const thermocline_wanted *wanted,
                           const char *bytes,
                           size_t len);

// A tier of the file's directory is emulated (`emulated=DEVICE`), as long as the handle lives:
// where none is, `thermocline_file_book` answers 0. `file` must not be NULL.
bool thermocline_file_is_emulated(const thermocline_file *file);

// For experiments with a tier that is emulated (`emulated=DEVICE`): when its device would be done
// with what the host is about to do, of `len` bytes at `offset`; 0 where the device is a real one.
// The host does it, then calls `thermocline_file_wait` with that time.
//
// `file` must not be NULL. `of` is one of THERMOCLINE_USE_*; for any other it is 0.
uint64_t thermocline_file_book(const thermocline_file *file,
                               int32_t of,
                               uint64_t offset,
                               size_t len);

// Waits for a time that `thermocline_file_book` told. `file` must not be NULL.
void thermocline_file_wait(const thermocline_file *file, uint64_t due);

// To be called when the host has made the file's bytes durable, before it relies on that: makes
// the name durable, too. Does nothing where it is.
thermocline_status thermocline_file_synced(const thermocline_file *file, char **why);

// To be called when the device refused (`ENOSPC`) to extend the file beyond its first `len` bytes:
// the file goes on elsewhere, with these bytes. The host opens the new place and repeats there
// what failed. `file` is one that was created, or opened to write.
//
// THERMOCLINE_OUT_OF_SPACE: every tier refused, and the file is as it was.
thermocline_status thermocline_file_continue_elsewhere(const thermocline_file *file,
                                                       uint64_t len,
                                                       char **why);

// Ends the use of the file here. After the last of those that write it the file may move. NULL is
// none.
void thermocline_file_close(thermocline_file *file);

// The number of names; 0 for NULL.
size_t thermocline_entries_count(const thermocline_entries *entries);

// The name at a position, counted from 0.
thermocline_entry thermocline_entries_get(const thermocline_entries *entries, size_t at);

// Gives the names back. NULL is none.
void thermocline_entries_close(thermocline_entries *entries);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THERMOCLINE_TIERS_H */
