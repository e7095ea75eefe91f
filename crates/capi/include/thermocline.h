// Thermocline: a key-value store for storage that is not all the same speed. The interface for C.
//
// This file is written from crates/capi by cbindgen. docs/c.md has a whole program.
//
// What holds for every function:
//
// - Ownership. What a function named _open, _create, _snapshot, _scan, _async or the like gives out is the
//   caller's until its own _close, which takes it; after that it is not used any more. Buffers and
//   texts go back to thermocline_free.
// - Inputs are borrowed for the call: the caller may change or free them once it has returned.
// - Keys and values are any bytes. NULL with a length of 0 is no bytes; with another length it is
//   THERMOCLINE_INVALID. A handle that is NULL is THERMOCLINE_INVALID, but nothing to a _close.
// - The answer is a thermocline_status: 0, or what can be done about it. `why` may be NULL. If it is
//   not, every call sets *why: to NULL, or to one line of text that says what, where and the way
//   out, which is the caller's and goes back to thermocline_free.
// - Places for other answers are set, too: to NULL and 0 where there is no answer. They are not
//   read before, so they need no first value.
// - A fault of the library is caught and is THERMOCLINE_PANIC. From then on the handle, and all
//   handles of its database, answer only their _close.
// - Structs of options begin with their size, so that later versions can add to them. NULL is no
//   options, and what is 0 is the default.
// - Threads: each type says whether several may use it at once.
// - Nothing is called back. Without memory the process ends. In a child of fork() the handles answer
//   THERMOCLINE_LOCKED.
// - Numbers, names and structs stay as they are within libthermocline.so.1, which only grows.


#ifndef THERMOCLINE_H
#define THERMOCLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of this interface that the header describes. It goes up by one with every release
// that adds to the interface; what is there stays.
#define THERMOCLINE_ABI_VERSION 1

// As durable as the settings of the database say.
#define THERMOCLINE_DURABILITY_OF_SETTINGS 0

// What was written survives a loss of power.
#define THERMOCLINE_DURABILITY_SYNC 1

// What was written survives the end of the process. A loss of power can take the last of it.
#define THERMOCLINE_DURABILITY_BUFFERED 2

// All reads are as of the beginning. A commit is a conflict where another wrote a key that the
// transaction writes or has read for an update. The default.
#define THERMOCLINE_ISOLATION_SNAPSHOT 0

// Each read sees what is committed by then. Only keys that were read for an update conflict.
#define THERMOCLINE_ISOLATION_READ_COMMITTED 1

// As SNAPSHOT, and what was read conflicts, too: the outcome is that of one after the other.
#define THERMOCLINE_ISOLATION_SERIALIZABLE 2

// How a call went. Each says what the caller can do.
typedef enum {
  // It is done.
  THERMOCLINE_OK = 0,
  // A look-up found no such key, or a scan has no more records: these two have no text. An
  // opening found no database, file or tier where one is needed: fix the path, or create it.
  THERMOCLINE_NOT_FOUND = 1,
  // Something is in the way: choose another place.
  THERMOCLINE_ALREADY_EXISTS = 2,
  // A tier or its device is full: free space or raise the capacity.
  THERMOCLINE_OUT_OF_SPACE = 3,
  // Stored bytes are not what was written: restore from a checkpoint.
  THERMOCLINE_CORRUPT = 4,
  // The database is open already, in another process or in this one, or its handle came with a
  // fork; the text says where: close it there.
  THERMOCLINE_LOCKED = 5,
  // A tier is missing, foreign, swapped or out of date: mount or name the right one.
  THERMOCLINE_TIER = 6,
  // The data was written by a newer version: upgrade.
  THERMOCLINE_NEWER_FORMAT = 7,
  // The call or the settings cannot be carried out as given: fix them.
  THERMOCLINE_INVALID = 8,
  // The store takes no writes, since an earlier failure or because of how it was opened; the
  // text says which: remove the cause and reopen, or read.
  THERMOCLINE_READ_ONLY = 9,
  // Another write came first; nothing was written: run it again, from its reads on.
  THERMOCLINE_CONFLICT = 10,
  // Transactions wait for each other's locks: drop this one and run it again.
  THERMOCLINE_DEADLOCK = 11,
  // Another transaction has held a lock for too long: run this again, or end the other.
  THERMOCLINE_LOCK_TIMEOUT = 12,
  // Permissions do not allow it: change them, or open for reading only.
  THERMOCLINE_DENIED = 13,
  // As many files are open as may be: raise `ulimit -n` and call again. Nothing has changed.
  THERMOCLINE_TOO_MANY_OPEN_FILES = 14,
  // A device failed: see the system's log.
  THERMOCLINE_IO = 15,
  // As many asynchronous requests wait as may: wait for one and call again. Nothing has changed.
  THERMOCLINE_BUSY = 16,
  // A fault of the library, caught. The handle, and all handles of its database, answer nothing
  // but their `_close` from here on: close them and open the database again.
  THERMOCLINE_PANIC = 100,
  // Of a ticket: there is no answer yet. Without a text.
  THERMOCLINE_PENDING = 101,
} thermocline_status;

// Writes that take effect together. It belongs to no database.
//
// Threads: one at a time.
typedef struct thermocline_batch thermocline_batch;

// An open database.
//
// Threads: any number may call at once, except that `thermocline_db_close` is the last call.
typedef struct thermocline_db thermocline_db;

// A scan under way.
//
// Threads: one at a time.
typedef struct thermocline_scan thermocline_scan;

// The database as of one moment, for as long as it is held. Meanwhile the space of what it can see
// is not given back.
//
// Threads: any number may call at once, except that `thermocline_snapshot_close` is the last call.
typedef struct thermocline_snapshot thermocline_snapshot;

// An answer to come: of `thermocline_db_put_async` and the calls like it. The request is carried
// out whether or not anything looks at the ticket.
//
// Threads: one at a time.
typedef struct thermocline_ticket thermocline_ticket;

// Reads and writes that take effect together, at the commit, or not at all.
//
// Threads: one at a time.
typedef struct thermocline_transaction thermocline_transaction;

// How a batch is written. Fields of 0 are the defaults.
typedef struct {
  // `sizeof(thermocline_write_options)`.
  size_t size;
  // One of THERMOCLINE_DURABILITY_.
  uint64_t durability;
} thermocline_write_options;

// How a scan goes. Fields of 0 are the defaults.
typedef struct {
  // `sizeof(thermocline_scan_options)`.
  size_t size;
  // Not 0: the largest key comes first.
  uint64_t is_reverse;
  // Not 0: so many records at most. The first read from a disk has a fitting size.
  uint64_t limit;
} thermocline_scan_options;

// A record of a scan. Key and value lie in memory of the library, until the next call with the
// scan.
typedef struct {
  // The first byte of the key.
  const char *key;
  // Bytes of the key.
  size_t key_len;
  // The first byte of the value.
  const char *value;
  // Bytes of the value.
  size_t value_len;
} thermocline_record;

// How a transaction is run. Fields of 0 are the defaults.
typedef struct {
  // `sizeof(thermocline_transaction_options)`.
  size_t size;
  // One of THERMOCLINE_ISOLATION_.
  uint64_t isolation;
  // Not 0: a key that is written, or read for an update, is locked until the end, and others
  // that write it wait. Else a commit finds that another came first.
  uint64_t is_pessimistic;
  // One of THERMOCLINE_DURABILITY_, for the commit.
  uint64_t durability;
  // How long a call waits for a lock before it is THERMOCLINE_LOCK_TIMEOUT, in milliseconds; 0
  // is what the settings say, 1000 unless they say otherwise.
  uint64_t lock_timeout_ms;
  // Memory for the writes, in bytes, each with about 100 besides key and value: a write beyond
  // is THERMOCLINE_INVALID, and the transaction goes on without it. 0 is
  // what the settings say, 64 MiB unless they say otherwise.
  uint64_t bytes_max;
} thermocline_transaction_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that the library in use has; a program was compiled with
// THERMOCLINE_ABI_VERSION. A library with a higher one has all that the program knows.
uint32_t thermocline_abi_version(void);

// Gives back a buffer or a text that a function of this library gave out. NULL is none.
//
// `buffer` must come from this library and be given back once. Threads: any.
void thermocline_free(void *buffer);

// Opens the database in the directory `home`, for writing.
//
// `settings` is TOML, the same as in the file `settings.toml` of the command line: tiers with
// their paths and capacities, memory, durability. With a text, a database that is not there is
// made, and one that is there goes on with these settings; tiers may be left out then. NULL opens
// only: with the tiers and settings that the database keeps, and THERMOCLINE_NOT_FOUND where there
// is none.
//
// `*db` becomes the handle, which is the caller's until `thermocline_db_close`; NULL after an
// error. A database is open once, in one process: THERMOCLINE_LOCKED says where else it is.
thermocline_status thermocline_db_open(const char *home,
                                       const char *settings,
                                       thermocline_db **db,
                                       char **why);

// Opens the database in the directory `home` for reading only: nothing is written, and several
// processes may read beside each other. Changes are THERMOCLINE_READ_ONLY.
//
// `settings`, if not NULL, hold for this opening: for tiers that are mounted elsewhere, or another
// budget of memory. `*db` as for `thermocline_db_open`.
thermocline_status thermocline_db_open_read_only(const char *home,
                                                 const char *settings,
                                                 thermocline_db **db,
                                                 char **why);

// Closes the database and says whether all went well. Takes the handle, whatever the answer is;
// NULL is none, and OK.
//
// Snapshots, scans, tickets and transactions of it are closed by their own calls, best before:
// what is left keeps the files and the lock, and the answer is THERMOCLINE_LOCKED, with all data
// durable.
thermocline_status thermocline_db_close(thermocline_db *db, char **why);

// Sets `key` (up to 64 KiB) to `value` (up to 256 MiB), as durable as the settings say: unless
// they say otherwise, it survives a loss of power once the call has returned.
thermocline_status thermocline_db_put(const thermocline_db *db,
                                      const void *key,
                                      size_t key_len,
                                      const void *value,
                                      size_t value_len,
                                      char **why);

// Removes `key`, as durable as the settings say. Removing what is not there is OK.
thermocline_status thermocline_db_delete(const thermocline_db *db,
                                         const void *key,
                                         size_t key_len,
                                         char **why);

// Looks `key` up. Where it is, `*value` becomes a buffer with `*value_len` bytes, which is the
// caller's and goes back to `thermocline_free`. Where it is not, the answer is
// THERMOCLINE_NOT_FOUND without a text.
//
// `value` and `value_len` may each be NULL, where only the other, or the answer, is wanted. They
// get NULL and 0 where there is no value; the buffer of a value without bytes is not NULL.
thermocline_status thermocline_db_get(const thermocline_db *db,
                                      const void *key,
                                      size_t key_len,
                                      char **value,
                                      size_t *value_len,
                                      char **why);

// Looks up the `count` keys `keys[0]`, `keys[1]`, ... of `key_lens[0]`, `key_lens[1]`, ... bytes,
// as of one moment. Faster than as many calls of `thermocline_db_get` where values are on disks:
// they are read together.
//
// `values` and `value_lens` have room for `count`. Each value becomes a buffer that goes back to
// `thermocline_free`, or NULL with a length of 0 where there is no such key, which is OK. After an
// error all are NULL. With a `count` of 0 the arrays may be NULL.
thermocline_status thermocline_db_multi_get(const thermocline_db *db,
                                            size_t count,
                                            const void *const *keys,
                                            const size_t *key_lens,
                                            char **values,
                                            size_t *value_lens,
                                            char **why);

// Writes what is in `batch`: all of it or, after an error or a crash, nothing. The batch stays as
// it is.
//
// `options` say how durable it is; NULL: as the settings do.
thermocline_status thermocline_db_write(const thermocline_db *db,
                                        const thermocline_batch *batch,
                                        const thermocline_write_options *write_options,
                                        char **why);

// Makes all that was written so far durable, as after a loss of power: of use where the settings
// or the options of writes ask for less.
thermocline_status thermocline_db_sync(const thermocline_db *db, char **why);

// Writes what is in memory to the tiers, so that the next opening has less to replay. Nothing is
// more durable for it.
thermocline_status thermocline_db_flush(const thermocline_db *db, char **why);

// Makes the directory `directory`, which must not be there, a database of its own with the records
// of now. Files are linked where it is on the file system of their tier, and copied elsewhere.
thermocline_status thermocline_db_checkpoint(const thermocline_db *db,
                                             const char *directory,
                                             char **why);

// The state of the database as JSON, the same as of `thermocline stats --json`: sizes in bytes,
// times in the unit that their name ends with. `*json` becomes a text with a zero behind, which is
// the caller's and goes back to `thermocline_free`; NULL after an error.
thermocline_status thermocline_db_stats(const thermocline_db *db, char **json, char **why);

// Makes an empty batch, which is the caller's until `thermocline_batch_close`. Never NULL.
thermocline_batch *thermocline_batch_create(void);

// Adds to the batch: set `key` to `value`. Of writes to the same key the later one counts.
//
// Key and value have the limits of `thermocline_db_put`, and the batch has one, too; what goes
// beyond is THERMOCLINE_INVALID, and then the batch as a whole is not written any more, until
// `thermocline_batch_clear`.
thermocline_status thermocline_batch_put(thermocline_batch *batch,
                                         const void *key,
                                         size_t key_len,
                                         const void *value,
                                         size_t value_len,
                                         char **why);

// Adds to the batch: remove `key`. Limits as for `thermocline_batch_put`.
thermocline_status thermocline_batch_delete(thermocline_batch *batch,
                                            const void *key,
                                            size_t key_len,
                                            char **why);

// Forgets all writes of the batch, and keeps its memory for the next.
thermocline_status thermocline_batch_clear(thermocline_batch *batch, char **why);

// Takes the batch. NULL is none.
void thermocline_batch_close(thermocline_batch *batch);

// Takes a snapshot of the database. `*snapshot` becomes the handle, which is the caller's until
// `thermocline_snapshot_close`; NULL after an error.
thermocline_status thermocline_db_snapshot(const thermocline_db *db,
                                           thermocline_snapshot **snapshot,
                                           char **why);

// As `thermocline_db_get`, as of the snapshot.
thermocline_status thermocline_snapshot_get(const thermocline_snapshot *snapshot,
                                            const void *key,
                                            size_t key_len,
                                            char **value,
                                            size_t *value_len,
                                            char **why);

// As `thermocline_db_multi_get`, as of the snapshot.
thermocline_status thermocline_snapshot_multi_get(const thermocline_snapshot *snapshot,
                                                  size_t count,
                                                  const void *const *keys,
                                                  const size_t *key_lens,
                                                  char **values,
                                                  size_t *value_lens,
                                                  char **why);

// As `thermocline_db_scan_with`, as of the snapshot, which may be closed before the scan.
thermocline_scan *thermocline_snapshot_scan(const thermocline_snapshot *snapshot,
                                            const void *from,
                                            size_t from_len,
                                            const void *to,
                                            size_t to_len,
                                            const thermocline_scan_options *scan_options);

// Takes the snapshot. NULL is none.
void thermocline_snapshot_close(thermocline_snapshot *snapshot);

// Begins a scan of the records with keys at or after `from` and before `to`, as of now. NULL with
// a length of 0 is no bound. To scan a prefix, let `to` be the prefix with its last byte one
// larger.
//
// The scan is the caller's until `thermocline_scan_close`. It is never NULL: an error is the
// answer of the first `thermocline_scan_next`. The bounds are copied. While it is open, the space
// of what it can see is not given back.
thermocline_scan *thermocline_db_scan(const thermocline_db *db,
                                      const void *from,
                                      size_t from_len,
                                      const void *to,
                                      size_t to_len);

// As `thermocline_db_scan`, with options; NULL is none.
thermocline_scan *thermocline_db_scan_with(const thermocline_db *db,
                                           const void *from,
                                           size_t from_len,
                                           const void *to,
                                           size_t to_len,
                                           const thermocline_scan_options *scan_options);

// Gives the next record: `*record` leads to it until the next call with the scan, which may be
// `thermocline_scan_close`. THERMOCLINE_NOT_FOUND, without a text, is the end; `*record` is zeroed
// then, as after an error.
//
// A record that is damaged is an error in its place: the next call goes on behind it.
thermocline_status thermocline_scan_next(thermocline_scan *scan,
                                         thermocline_record *record,
                                         char **why);

// Takes the scan. NULL is none.
void thermocline_scan_close(thermocline_scan *scan);

// Sets `key` to `value` if there is no such key, and nothing comes between. `*is_put` says whether
// it was so; that it was not is OK, too.
thermocline_status thermocline_db_put_if_absent(const thermocline_db *db,
                                                const void *key,
                                                size_t key_len,
                                                const void *value,
                                                size_t value_len,
                                                bool *is_put,
                                                char **why);

// Sets `key` to `value` if there is such a key, and nothing comes between. `*is_put` says whether
// it was so; that it was not is OK, too.
thermocline_status thermocline_db_put_if_present(const thermocline_db *db,
                                                 const void *key,
                                                 size_t key_len,
                                                 const void *value,
                                                 size_t value_len,
                                                 bool *is_put,
                                                 char **why);

// Sets `key` to `replacement` if its value is `expected`, byte for byte, and nothing comes
// between.
// `expected` NULL with a length of 0: if there is no such key. `replacement` NULL with a length of
// 0: the key is removed. A pointer with a length of 0 is a value without bytes.
//
// `*is_swapped` says whether it was so; that it was not is OK, too. Then `*found` and `*found_len`
// become the value that the key has, as of `thermocline_db_get`, or NULL and 0 where there is no
// such key. Each of the two may be NULL.
thermocline_status thermocline_db_compare_and_swap(const thermocline_db *db,
                                                   const void *key,
                                                   size_t key_len,
                                                   const void *expected,
                                                   size_t expected_len,
                                                   const void *replacement,
                                                   size_t replacement_len,
                                                   bool *is_swapped,
                                                   char **found,
                                                   size_t *found_len,
                                                   char **why);

// As `thermocline_db_put`, but returns at once: `*ticket` has the answer once the value is as
// durable as asked and readers see it. Key and value are copied.
//
// The ticket is the caller's until `thermocline_ticket_close`. Writes take effect, and are
// answered, in the order in which they were handed in.
//
// THERMOCLINE_BUSY where as many requests wait as may (settings `request_queue` and
// `request_queue_bytes`): wait for a ticket, and call again.
thermocline_status thermocline_db_put_async(const thermocline_db *db,
                                            const void *key,
                                            size_t key_len,
                                            const void *value,
                                            size_t value_len,
                                            thermocline_ticket **ticket,
                                            char **why);

// As `thermocline_db_delete`, but returns at once, as `thermocline_db_put_async` does.
thermocline_status thermocline_db_delete_async(const thermocline_db *db,
                                               const void *key,
                                               size_t key_len,
                                               thermocline_ticket **ticket,
                                               char **why);

// As `thermocline_db_write`, but returns at once, as `thermocline_db_put_async` does. The batch is
// copied, and stays as it is.
thermocline_status thermocline_db_write_async(const thermocline_db *db,
                                              const thermocline_batch *batch,
                                              const thermocline_write_options *write_options,
                                              thermocline_ticket **ticket,
                                              char **why);

// As `thermocline_db_get`, but returns at once: the ticket gives the value, or
// THERMOCLINE_NOT_FOUND. It has its answer already where the record is in memory. Busy as for
// `thermocline_db_put_async`.
thermocline_status thermocline_db_get_async(const thermocline_db *db,
                                            const void *key,
                                            size_t key_len,
                                            thermocline_ticket **ticket,
                                            char **why);

// Gives the answer of the request if there is one by now, and never waits: THERMOCLINE_PENDING,
// without a text, where there is none yet. Once it was given, the ticket answers
// THERMOCLINE_INVALID.
//
// The answer is that of the call without `_async`. `value` and `value_len` are for a get, and as
// for `thermocline_db_get`; of a write they may be NULL, and get NULL and 0.
thermocline_status thermocline_ticket_poll(thermocline_ticket *ticket,
                                           char **value,
                                           size_t *value_len,
                                           char **why);

// As `thermocline_ticket_poll`, but waits for the answer.
thermocline_status thermocline_ticket_wait(thermocline_ticket *ticket,
                                           char **value,
                                           size_t *value_len,
                                           char **why);

// Takes the ticket. The request is carried out all the same. NULL is none.
void thermocline_ticket_close(thermocline_ticket *ticket);

// Begins a transaction. `*transaction` becomes the handle, which is the caller's until
// `thermocline_transaction_close`; NULL after an error. `transaction_options` may be NULL.
//
// Nothing of it is written before its commit, and others see none of it before. Its own reads see
// its writes.
thermocline_status thermocline_db_begin(const thermocline_db *db,
                                        const thermocline_transaction_options *transaction_options,
                                        thermocline_transaction **transaction,
                                        char **why);

// As `thermocline_db_get`: the value as the transaction has written it, or else as its isolation
// says.
thermocline_status thermocline_transaction_get(thermocline_transaction *transaction,
                                               const void *key,
                                               size_t key_len,
                                               char **value,
                                               size_t *value_len,
                                               char **why);

// As `thermocline_transaction_get`, and no other write of the key may come between this and the
// commit: THERMOCLINE_CONFLICT now, or then. Pessimistic, the lock of the key is taken, which can
// be THERMOCLINE_LOCK_TIMEOUT or THERMOCLINE_DEADLOCK.
thermocline_status thermocline_transaction_get_for_update(thermocline_transaction *transaction,
                                                          const void *key,
                                                          size_t key_len,
                                                          char **value,
                                                          size_t *value_len,
                                                          char **why);

// Sets `key` to `value` at the commit. Pessimistic, the lock of the key is taken now, with the
// answers of `thermocline_transaction_get_for_update`.
thermocline_status thermocline_transaction_put(thermocline_transaction *transaction,
                                               const void *key,
                                               size_t key_len,
                                               const void *value,
                                               size_t value_len,
                                               char **why);

// Removes `key` at the commit. Locks as for `thermocline_transaction_put`.
thermocline_status thermocline_transaction_delete(thermocline_transaction *transaction,
                                                  const void *key,
                                                  size_t key_len,
                                                  char **why);

// As `thermocline_db_scan_with`, over what the transaction sees and has written until now. The
// scan may outlive the transaction.
thermocline_scan *thermocline_transaction_scan(thermocline_transaction *transaction,
                                               const void *from,
                                               size_t from_len,
                                               const void *to,
                                               size_t to_len,
                                               const thermocline_scan_options *scan_options);

// Makes all writes of the transaction durable and visible together. Whatever the answer is, the
// transaction is over, and its handle is to be closed.
//
// THERMOCLINE_CONFLICT where something has changed that it builds on: nothing was written, and all
// of it is to be done again, from its reads on.
thermocline_status thermocline_transaction_commit(thermocline_transaction *transaction, char **why);

// Takes all of the transaction back, and gives its locks back. It is over, and its handle is to be
// closed.
thermocline_status thermocline_transaction_rollback(thermocline_transaction *transaction,
                                                    char **why);

// Takes the transaction, and rolls it back if it is not over. NULL is none.
void thermocline_transaction_close(thermocline_transaction *transaction);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THERMOCLINE_H */
