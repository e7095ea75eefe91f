//! Planted bugs: the tests' test. Each [`Planted`] is a real, subtle mistake, written at the line
//! where a programmer could have made it. The simulation turns one on and must then find a
//! violation: a suite that does not see a bug that is there says nothing when it sees none.
//!
//! ```text
//!   foundation/planted.rs        the list; planted(bug): is it on in this thread?
//!   device, log, table, engine   if planted(Planted::TableNotSynced) { ... } at the natural line
//!   simulation                   planted::with(bug, || history) -> a violation, or a failed test
//! ```
//!
//! 1. Without the cargo feature `planted-bugs` (which is not a default and which no product turns
//!    on) [`planted`] is a constant `false`: the hooks compile to nothing.
//! 2. With it, a bug is on only in the thread that runs `with`, and only one at a
//!    time. Worker threads never see one; simulations run the whole store on one thread. Programs
//!    that torture the store as it is, threads and all, plant one bug in the whole process
//!    (`everywhere`).
//! 3. A hook changes what one line does and nothing else. What the bug damages is found by the same
//!    oracle that judges all runs, never by a check made for it.
//!
//! # Adding one
//! A subsystem with its own durability or concurrency adds its own bugs:
//! 1. Add a variant to the list below. Its comment says the class (reliability programme), what
//!    breaks, and which history or fault shows it.
//! 2. Put one `if planted(Planted::Name)` at the line where the mistake would be made. The crate
//!    needs `planted-bugs = ["thermocline-foundation/planted-bugs"]` in its features, and the
//!    crates above it forward the feature.
//! 3. The simulation's catching test goes through [`Planted::ALL`], so it fails until some history
//!    reveals the new bug. Where none does, the simulation lacks an operation or a fault: add that.
//!
//! Threads: any; the state is the calling thread's own.

macro_rules! bugs {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// A mistake that the tests must find. Each comment: class · damage · what shows it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Planted {
            $($(#[doc = $text])* $name,)*
        }

        impl Planted {
            /// Every bug of the list.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The bug's name, as in the list.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The bug of that name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|bug| bug.name() == name)
            }
        }
    };
}

bugs! {
    /// Directory sync missing · a published file's name is gone after a power cut, and the map
    /// lists it: refused at opening · power cut after a flush, a compaction or a new log.
    PublishSkipsDirectorySync,
    /// Fsync retried after failure · the second sync reports success for bytes that the first one
    /// dropped · one failed sync of a log, journal or table, later a power cut. The simulated
    /// device must forget dirty bytes when a sync fails, and not latch the handle.
    FailedSyncRetried,
    /// Acknowledged before the flush · a write with `Durability::Sync` is lost · power cut.
    AcknowledgedBeforeFlush,
    /// Recycled log page replayed · sectors of the file's earlier life complete a torn record, or
    /// are replayed as records: invented or outdated values, deletes undone · recycled log, power
    /// cut that loses sectors of its unsynced records, or comes while it is still empty.
    StaleLogPageReplayed,
    /// Tombstone resurrected · a compaction drops a tombstone although a deeper level has the key ·
    /// put, compact to a deep level, delete, compaction to a level between, get.
    TombstoneDroppedAboveOlder,
    /// Tombstone resurrected · a flush drops tombstones · put, flush, delete, flush, get.
    TombstoneDroppedInFlush,
    /// Inputs deleted before the edit is durable · the manifest names deleted tables: refused at
    /// opening · power cut or failed append between the map's record and the manifest's.
    InputsDeletedBeforeEdit,
    /// File number reused after a crash · numbers given out for files that were not published by
    /// then are given out again · power cut after a file was created and before it was published;
    /// a test that watches names sees one made twice. Leftovers are removed first, so no answer
    /// changes: only the driver's history shows it.
    FileNumberReused,
    /// File number reused · a recycled log keeps its number, lies below the floor and is not
    /// replayed · enough flushes to recycle a log, then a crash.
    RecycledLogKeepsNumber,
    /// Torn or partial record accepted · damage in the middle of a log is taken for its end,
    /// although durable records follow: they are lost without an error · a flipped or lost synced
    /// sector of a log, reopening.
    DamagedMiddleTakenForEnd,
    /// Torn or partial record accepted · a record whose later sectors are missing is completed with
    /// zeros and its checksum not compared · power cut that loses a later sector of an unsynced
    /// record longer than a sector.
    TornRecordAccepted,
    /// Torn batch · the second half of a batch of a log's record is not replayed · batches of
    /// several writes, crash (or clean close, which leaves them in the log).
    BatchCutInReplay,
    /// Hole between logs · records behind a hole are replayed: not a prefix · buffered writes over
    /// a rotation, power cut before the flush that loses the older log's tail and keeps the newer.
    HoleReplayedOver,
    /// Hole between logs · a sync makes the newest log durable and not the ones before it: a write
    /// acknowledged as durable is lost, or opening refused · buffered writes, rotation, a `Sync`
    /// write before the flush, power cut.
    OlderLogsNotSynced,
    /// Acknowledged before the flush · a sync of the log counts what was written while it was under
    /// way · a second thread that writes during a sync and then asks for one: only schedules of
    /// threads show it (`crates/log/tests/schedules`).
    SyncCountsLaterWrites,
    /// Edit order · a flushed log is deleted before the edit that makes it superfluous is durable ·
    /// power cut or failed append between the two.
    LogRetiredBeforeEdit,
    /// Zeros over records · a writer takes the next log although a piece of zeros is under way ·
    /// durable writes to a log that was taken while it was filled, then a kill.
    LogFilledInUse,
    /// Crash in recovery · logs are deleted before recovery's own edit is durable · a crash with
    /// records in the log, then a second one while opening.
    RecoveryDeletesLogsFirst,
    /// Table and manifest reordered · a table is published without a sync · power cut after a flush
    /// or compaction.
    TableNotSynced,
    /// Table and manifest reordered · the manifest's edit is durable before its tables are
    /// published: refused at opening · power cut between the two.
    EditBeforeTables,
    /// Table and manifest reordered · changes of file map and manifest are acted upon before they
    /// are durable · power cut after a flush, compaction or deletion.
    JournalNotSynced,
    /// Torn or partial record accepted · a torn frame of a journal is appended over without being
    /// erased; sectors of two attempts mix: refused at opening · power cut in an append that keeps
    /// some sectors, reopening, power cut in the first append there.
    TornFrameNotErased,
    /// A sync that failed taken for harmless later · the last frame of a journal stays in the page
    /// cache, marked as clean, and another is appended behind it: a gap, refused at opening · an
    /// error once in a sync of the file map, reopening, a flush, power cut.
    LastFrameNotRewritten,
    /// Out of space damages the manifest · a journal forgets that an append failed and goes on
    /// behind it: a gap, refused at opening · out of space once in an append of the file map during
    /// `compact_range` (elsewhere the store latches), then a flush, reopening.
    FailedAppendForgotten,
    /// Out of space wedges the store · a compaction that failed keeps its inputs claimed: nothing
    /// compacts them again · out of space once in `compact_range`, then `compact_range`, which
    /// waits for ever.
    FullDiskKeepsClaims,
    /// Out of space wedges the store · a job that was refused for want of room stops all writing,
    /// although it has changed nothing · out of space in a flush or a compaction, then a write.
    RefusalLatches,
    /// Copy incomplete · a table that moves to another tier in the midst of a key, for it outgrows
    /// its own, leaves the newer versions of that key behind · an older version that a snapshot
    /// keeps, merged where the tier has room for the newer one alone, then a read of the key.
    LastKeyNotCopied,
    /// Leftover prevents opening · the temporary file of a replaced `DATABASE` or settings file is
    /// in the way of the next · power cut (or failed write) between its creation and the rename.
    LeftoverPreventsOpening,
    /// Leaked files · tables that the manifest does not know stay for ever · power cut between the
    /// publication of a table and the manifest's edit.
    UnknownTablesKept,
    /// Leaked files · what was never published is not removed at opening, until the tier is full ·
    /// power cut while a table or log is written.
    LeftoversKept,
    /// Sequence goes back · recovery takes the sequence before the last for the last, where only
    /// tables know it: the newest record cannot be seen, the next write gets its sequence · flush,
    /// close or crash with empty logs, reopening.
    SequenceGoesBack,
    /// Iterator or snapshot against compaction · flushes and compactions drop versions that a
    /// snapshot sees · snapshot or open cursor, overwrite or delete, flush, compaction, read there.
    RetentionIgnoresSnapshots,
    /// Iterator or snapshot against compaction · a look-up at a snapshot sees the newest version ·
    /// snapshot, overwrite, `Snapshot::get`.
    SnapshotReadsNewest,
    /// Resumed compaction skips entries · the first entry after a compaction changes its output
    /// file is lost · compaction with several outputs.
    FirstEntryAfterCutSkipped,
    /// Read error taken for the end · the rest of a log is ignored and then deleted · read error on
    /// a log in recovery.
    LogReadErrorTakenForEnd,
    /// Read error taken for the end · a scan or compaction goes on without the table that cannot be
    /// read: records are missing, after a compaction for good · read error on a table in a scan or
    /// compaction.
    TableReadErrorTakenForEnd,
    /// Cache serves a stale block · the cache's key has only four bits of the file's number:
    /// blocks of other, also deleted, tables are served · reads between and after compactions.
    CacheKeyTooNarrow,
    /// Misplaced or misdirected block · checksums are of the bytes alone, not of their place: stale
    /// sectors of a recycled log look like its own, blocks of other tables and offsets are served ·
    /// crash with a recycled log; a misdirected read or write; two blocks of equal length swapped.
    ChecksumNotBound,
    /// Misplaced or misdirected block · checksums of a table's blocks are of the bytes alone · two
    /// blocks of equal length swapped, in one table or between two.
    BlockNotBound,
    /// Bit rot served · the checksum of a table's blocks is not compared · any flipped bit of a
    /// data block.
    BlockNotChecked,
    /// Tier swapped · whose tier it is is not looked at: refused for another reason, or accepted
    /// and another database's files removed · opening with a foreign tier or swapped ones.
    TierOwnerNotChecked,
    /// Tier out of date · an older clone of a tier is accepted · opening with an older copy of one
    /// tier.
    OlderTierAccepted,
    /// Durable write · the flag is not handed to the driver: what was acknowledged may be lost ·
    /// synced write, power cut.
    DurableFlagDropped,
    /// Parallel log · a group's last page has no mark that the stream goes on in the next: what
    /// follows is lost · two synced writes on pages of their own, power cut.
    SkipMarkMissing,
    /// Parallel log · a group continues the last page and goes on beyond it: what a cut leaves of
    /// it is taken for damage · several writes in flight, power cut.
    TailLeavesItsPage,
    /// Parallel log · sequences are compared only where a log begins: a later group is replayed
    /// over the hole that an earlier one left · several writes in flight, power cut.
    HoleInLogSkipped,
    /// Parallel log · a group is acknowledged before those that were claimed before it are
    /// complete · several writes in flight, power cut.
    AcknowledgedOutOfOrder,
    /// Parallel log · readers see a group before its write to the log is durable: what they saw may
    /// be lost · synced write, a reader beside it, power cut.
    VisibleBeforeDurable,
    /// Parallel log · a memtable is flushed while a group of it is not inserted: the group is in no
    /// table, and its log is retired · several writes in flight over a full memtable, power cut.
    InsertAfterFreeze,
    /// Parallel log · a synced group does not wait for the sync of buffered ones before it ·
    /// buffered write, synced write, power cut.
    BufferedBeforeSyncIgnored,
    /// Parallel log · a condition is compared with memtables while groups that were claimed before
    /// are not there yet: two that exclude each other are both written · conditional writes of
    /// several threads.
    ChecksMissFlyingGroups,
    /// Clock goes backwards · the write throttle reads the wall clock: writers wait for as long as
    /// it went back · wall clock set back while level 0 is over `level0_slowdown`.
    ThrottleReadsWallClock,
    /// Migration · the old copy is deleted before the map's record of the new one is durable ·
    /// migration, power cut between the two.
    MigrationDeletesFirst,
    /// Migration · the copy counts before it is synced and verified · migration, power cut; or a
    /// lost write during the copy.
    MigrationSwitchesUnsynced,
    /// Newest version missed · level 0 is searched by file number and the first match taken: a bulk
    /// load that began before a flush and ended after it loses to older values · ingest begun,
    /// write of one of its keys, flush, ingest finished, get.
    Level0SearchedByNumber,
    /// Newest version missed · only the newest table of level 0 is compacted and sinks below older
    /// ones: old values and deleted keys come back · overwrites over several flushes, compaction,
    /// get.
    NewerSinksBelowOlder,
    /// Newest version missed · of two frozen memtables the older is asked first · two rotations
    /// before a flush, a key in both, get.
    FrozenReadOldestFirst,
    /// Iterator skips · at the end of a table a cursor goes to the table after the next · scan or
    /// compaction over three tables of a level.
    NextTableSkipped,
    /// Bit rot served · the checksum of a slab's slot is not compared · any flipped bit of a live
    /// slot.
    SlotChecksumNotChecked,
    /// Neighbour damaged · a page that slots share is written without what the others hold · a
    /// flush into the free slots of a page with live ones, direct I/O.
    SlotNeighboursNotKept,
    /// Acknowledged before the flush · of the slabs that a batch touched the last is not synced ·
    /// flush into several slabs, power cut.
    SlotSyncSkipsLastSlab,
    /// Lost write not seen · a slab's sum of its live slots is not compared when it is scanned: an
    /// older intact record of the slot is taken for the live one · lost or misdirected write of a
    /// slot that was in use before, reopening.
    SlotSumsNotCompared,
    /// Freed too early · the slots of demoted records are given away before the edit that frees
    /// them is durable · demotion, flush into those slots, power cut before the edit.
    SlotsFreedBeforeEdit,
    /// Snapshot loses a version · a flush frees every older version in slots · snapshot, overwrite,
    /// flush, read by the snapshot.
    SlotReusedUnderSnapshot,
    /// Older version served · a demotion takes the newest version and leaves the older ones in
    /// their slots · snapshot, overwrite, snapshot dropped, demotion.
    OlderVersionStays,
    /// Log floor raised too early · the first piece of a flush raises it · a memtable of several
    /// pieces, crash between them.
    FloorRaisedByFirstPiece,
    /// A log durable too late · an opening makes the first piece of what it replayed durable before
    /// the logs are · writes without syncs, kill, crash between the pieces of the opening.
    ReplayedLogsNotSynced,
    /// Bulk load hidden · a look-up takes what a slot has without comparing it with newer bulk
    /// loads · flush, bulk load of the same key, read.
    IngestHiddenBySlot,
    /// Bulk load hidden · look-ups stop comparing slots with a bulk load once its tables merged,
    /// though what it replaced has not left the index · a look-up beside the demotion that ends the
    /// load: only schedules of threads show it (`crates/engine/tests/schedules`).
    IngestEndsBeforeDepartures,
    /// Deleted value back · a promotion is not held to what tables and index have by now · a slow
    /// reader, delete, demotion of the tombstone, promotion.
    StalePromotion,
    /// Scan with a gap · a cursor does not notice that records left for tables · a scan under way,
    /// demotion of what lies before it.
    CursorMissesDepartures,
    /// Slot lost · a record that was moved for the sake of other sizes keeps its old slot, too ·
    /// values of changing sizes on a full fast tier.
    MovedSlotNotFreed,
    /// Wrong bytes served · a packed record that is moved for the sake of other sizes is no longer
    /// said to be packed · the same, with values that are packed.
    MovedSlotUnpacked,
    /// Older version served · a piece of a flush ends between two versions of a key: the newer one
    /// may leave before the older one comes into its slot · snapshot, overwrite in the same
    /// memtable, a full fast tier, so that a demotion comes between the pieces.
    PieceCutsVersions,
    /// Slot lost · a demotion frees the slot that a record had when it was chosen, and not the one
    /// that it has been given since · values of changing sizes on a full fast tier, so that a
    /// record is moved while it leaves.
    DemotionFreesOldSlot,
    /// Bulk load hidden · a demotion that meets a newer bulk load leaves a copy that has no slot:
    /// the load's table is merged, and look-ups no longer compare the two · promotion, bulk load of
    /// the same key, demotion of its range, read.
    CopyStaysUnderIngest,
    /// Cache serves a stale block · what a copy of a table's index says is taken without comparing
    /// its checksum, which is bound to the table: records are not found · a flipped bit of it.
    IndexCopyNotChecked,
    /// Leaked files · the copy of a table's index stays when the table goes · copies of indexes,
    /// compaction of their tables.
    IndexCopyOutlivesTable,
    /// Out of space loses records · the records of a demotion leave their slots although its merge
    /// failed and no table has them · slow tier full or gone, demotion, get.
    FailedDemotionDeparts,
    /// Tombstone for ever · a merge keeps tombstones that have nothing left to hide · flush,
    /// demotion, delete, demotion with the oldest run: tables stay that hold nothing for a reader.
    TombstoneLeftBehind,
    /// Deleted value back · an opening believes every slot that is intact, and not the manifest,
    /// which says what is live · demotion, delete, demotion of the tombstone, crash.
    DeadSlotBelieved,
    /// Bit rot hidden · an opening takes a live slot that is not intact for the torn write of a
    /// record that was never acknowledged: it is missing, without an error · a flipped bit of a
    /// live slot, reopening.
    DamagedSlotTakenForTorn,
    /// Torn batch · the first piece of a flush is durable before the log's tail is · a batch of
    /// several pieces, power cut between them.
    LogNotSealedBeforePiece,
    /// File gone under a reader · a table is deleted with the edit that takes it out, although a
    /// reader still reads it · a scan under way that has not opened all of its tables, demotion
    /// that replaces them.
    DoomedTableDeletedAtOnce,
    /// Old version back · a look-up at a snapshot offers what it found for promotion, and from a
    /// slot the old version stands for the newest · put, snapshot, put, compaction, the snapshot's
    /// get several times, get.
    SnapshotReadMovesUp,
    /// Never given back · the memory that a demotion took from the cache of records stays taken: no
    /// answer changes, and the cache is smaller with each demotion · demotion, closing; only what
    /// is left over at rest shows it.
    DemotionKeepsMemory,
    /// Out of space loses records · an opening that finds no room for what the logs had, and is
    /// only to be read, deletes the logs as others do · both tiers full, reopening, reopening with
    /// room.
    ReadOnlyOpeningDropsLogs,
    /// Serializable that is none · a commit validates keys and forgets the ranges that were read:
    /// phantoms · a history of transactions with scans, writes into their ranges, commits.
    RangeNotValidated,
    /// Snapshot of a later moment · a scan of a transaction sees what was committed after its
    /// beginning · a history of transactions: begin, a commit of another, scan.
    SnapshotTooNew,
    /// Savepoint that takes nothing back · a commit has writes that were rolled back · a history of
    /// transactions with savepoints.
    SavepointKeepsWrites,
    /// Lost update · a commit is taken for valid where memory does not reach back to what it builds
    /// on · a history of transactions: read, another's write, flush, commit.
    CommitValidatesMemoryOnly,
    /// Dirty write · going back to a savepoint lets go of all locks, also of keys whose writes stay
    /// · a history of pessimistic transactions: put, savepoint, back to it, a put of another.
    LockReleasedEarly,
    /// Region · a group is acknowledged before the fence: it is lost · power cut.
    GroupBeforeFence,
    /// Region · the last line of a group is not flushed: what was acknowledged looks torn · power
    /// cut.
    GroupLineNotFlushed,
    /// Region · the checksum of a group is not bound to its arena: groups of an earlier memtable
    /// are replayed · chunks that a second arena gets, reopening.
    GroupNotBound,
    /// Region · a flush frees the arena of its memtable before the edit that has its tables is
    /// durable: what was acknowledged is gone · a flush whose edit fails, reopening.
    ArenaFreedBeforeEdit,
    /// Region · a node is changed before the run is in the journal: half of a run is left · power
    /// cut.
    NodeBeforeJournal,
    /// Region · a run counts as applied before its lines are durable: opening does not apply it
    /// again · power cut.
    RunCountedEarly,
    /// Region · a new object is not flushed before a node names it · power cut.
    ObjectNotFlushed,
    /// Region · an entry of an older record replaces that of a newer one · tables that are entered
    /// out of order.
    OlderEntryWins,
    /// Index · a table is entered before the edit that adds it is durable · power cut.
    IndexedBeforeEdit,
    /// Index · the last record of tables that are entered does not go in: a look-up misses it ·
    /// flushes, look-ups beside scans.
    LastRecordNotEntered,
    /// Index · a table of which nothing is live leaves although a snapshot sees it: a read of that
    /// misses records · a snapshot that is held, overwrites.
    SnapshotSeesLiveAlone,
    /// Index · a table is removed that entries name · merges, look-ups.
    TableDroppedWithEntries,
    /// Index · a merge drops a tombstone although an older table has its key: the key comes back ·
    /// deletes, merges of some tables, another opening.
    TombstoneDroppedWithOlder,
    /// Index · the entry of a tombstone that a merge drops goes before the edits of the merge: the
    /// key comes back · a merge whose edit fails, another opening, a merge of some tables.
    TombstoneEntryRemovedEarly,
    /// Index · where there is no room the tombstone of a key gets no entry although a table that
    /// waits has something older: the key comes back · a full index, long keys, deletes.
    WaitingRecordsNotSought,
    /// Index · a look-up takes the tables that wait after it has asked the index: what was entered
    /// between the two is missed · only schedules show it
    /// (`crates/engine/tests/schedules/indexed.rs`).
    WaitingTakenAfterIndex,
    /// Region · the live counts of tables are changed outside of the run: they are wrong after it ·
    /// power cut.
    LiveCountOutsideRun,
    /// Region · a look-up does not go to the right neighbour of a leaf that was split meanwhile: a
    /// key is missed · only schedules show it (`crates/pmem/tests/schedules`).
    ReaderIgnoresSplit,
    /// Region · what an ordinary file has is believed after another boot, although it was not
    /// closed · opening with another boot's identity.
    OtherBootBelieved,
    /// Region · an older copy of the region is accepted · opening with an older generation.
    OlderRegionAccepted,
    /// Region · a new region begins with the generations of the one before: a copy of that is taken
    /// for it · a region made anew elsewhere, the old one under its name.
    RegionBeginsAgain,
    /// Cache believed · a copy of a block is served without a look at its checksum: wrong values ·
    /// blocks that are taken for others, for few bits tell them apart, or damage to a file of the
    /// block cache; reads.
    CachedBlockNotVerified,
    /// Cache of another copy believed · a file of the block cache that a checkpoint's original
    /// sealed is adopted, or one of a list that is not of the database's past: both have given a
    /// number to different tables · writes to both, the original's file in the checkpoint or that
    /// of an older backup in a newer one, reopening, reads.
    CacheOfOtherInstanceAdopted,
    /// Cache of an abandoned future believed · a file of the block cache that is newer than the
    /// database is adopted · restore of older files, writes, reopening, reads.
    NewerCacheAdopted,
    /// A cache that fails its callers · the error of a copy is the read's · damage to a file of the
    /// block cache, reads.
    CacheErrorFailsRead,
    /// Torn footer believed · pages of a cache file count without their checksum · a flipped bit in
    /// its directory, reopening.
    TornFooterBelieved,
    /// Leak · a file of the block cache that leaves is not deleted · reads until the cache is full,
    /// counting files.
    CacheFileLeaked,
    /// A lock left out · copies leave for a table without the lock of the block cache's upkeep: a
    /// file that is begun meanwhile is on no list, or one that is gone is on it still · a table
    /// that finds no room beside reads that fill the cache. Only schedules of threads show it
    /// (`crates/engine/tests/schedules/copies.rs`).
    CopiesLeaveUnlocked,
    /// Logs lack room · the block cache counts what other files of the tier have, and not what
    /// logs, journals and the next flush may come to · reads until the cache is full, then writes.
    CacheTakesLogRoom,
    /// Dictionary not bound to its table · the cache knows a prepared dictionary by no table, so
    /// blocks of one meet that of another · two tables with dictionaries, reads.
    DictionaryOfOtherTable,
    /// Losses are said · a repair plans the same and names nothing as lost · a damaged record.
    RepairNamesNothing,
    /// Repair takes effect at once · old files are deleted before the manifest that does without
    /// them is there · a damaged table, a power cut in between.
    RepairDeletesFirst,
    /// A read that fails is not damage · a repair counts what a device does not give as damaged,
    /// unasked · a read of a repair that fails once.
    RepairTakesReadErrorForDamage,
    /// Of each key the newest record counts, wherever it lies · a manifest is made anew without
    /// what slots have · a manifest of zeros, records on the fast tier.
    RebuildForgetsSlots,
    /// Of each key the newest record counts, wherever it lies · a manifest is made anew without
    /// what logs have · a manifest of zeros, records that were not flushed.
    RebuildForgetsLogs,
    /// A load has its place among what was written before and after · its tables do not say what
    /// they follow · records in slots, a load of their keys, a manifest of zeros.
    LoadFollowsNothing,
    /// A copy has what is live · of each slab a copy has zeros for the last live slot, too · a
    /// checkpoint with records on the fast tier, opened.
    CopyLacksLastSlot,
    /// Names over links · a link replaces another before what it names is synced · a file is
    /// renamed over another before its own sync, power cut.
    LinkSwitchedUnsynced,
    /// Names over links · the old place of a moved file goes before the new link is durable · a
    /// move, power cut that loses the new link.
    OldPlaceDeletedFirst,
    /// Names over links · a move makes its link durable before the name that the link leads to · a
    /// move, power cut between the two, the tier alone.
    HomeSyncedBeforeTier,
    /// Names over links · the first sync of a file makes its bytes durable and not its name · a
    /// file that is synced and whose directory is not, power cut.
    FirstSyncForgetsName,
    /// Names over links · a sync of the host's directory makes links durable and not the tiers'
    /// names that they lead to · bytes synced without their name, as RocksDB's tables are, the
    /// directory synced, power cut.
    DirectorySyncForgetsTiers,
    /// Names over links · an opening gives out serials again that an earlier one gave · creation,
    /// crash, creation of the same name; simulated devices watch the names.
    SerialReused,
    /// Names over links · a hard link of a file becomes a second link to the one tier file · link,
    /// delete one of the two names, read the other.
    LinkedNamesShareFile,
    /// Names over links · an opening drops a link whose file is gone · creation, power cut that
    /// loses the tier's name and keeps the link.
    LostLinkDropped,
    /// Names over links · a copy of the directory opens beside the original and shares its tiers'
    /// files · the directory is copied, the copy is opened.
    CopiedDirectoryAccepted,
    /// Names over links · a file that goes on elsewhere takes along what a failed append left, and
    /// its host appends that once more · a full device that takes the first part of an append.
    OverflowRepeatsAppend,
    /// Names over links · a file that takes another's name is read from the other's copy on a
    /// faster tier · copy, rename over the name, read.
    CopyOfReplacedFileServed,
    /// Names over links · a table moves while its host writes it · creation, append, move, append
    /// through the handle that is open, read.
    MovedWhileWritten,
    /// Names over links · a copy on a faster tier stays when its file is written again · copy,
    /// append, read.
    CopyOfWrittenFileServed,
    /// Names over links · extents are bound to the name of their file alone · reads until extents
    /// are kept, another file under the name, read.
    ExtentOfReplacedFileServed,
    /// Tiers that change · the directory that goes is emptied before the new file map and
    /// `DATABASE` are there: the last file map is gone, and nothing opens · the fastest tier is
    /// replaced or removed, the process ends between the two.
    LeftEmptiedFirst,
    /// Tiers that change · an opening that ends a change empties the directory that goes before it
    /// has looked at the tiers: a refused opening deletes what may be the last copy · a change cut
    /// off at its end, the new directory not mounted.
    LeftEmptiedUnasked,
    /// Tiers that change · a file map that an attempt has left is not removed: no opening ends the
    /// change · a change cut off after its map, opening.
    HalfMadeMapStays,
    /// Tiers that change · an opening that ends a change does not compare what `TIER` says, and
    /// makes a wrong disk the right one · a change cut off, an older clone of a tier mounted.
    ChangeEndedUnasked,
}

/// `bug` is on in this thread.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(_bug: Planted) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub use active::{everywhere, hits, planted, planted_everywhere, with};

#[cfg(feature = "planted-bugs")]
mod active {
    use super::Planted;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// The position in the list of the bug that all threads have, counted from 1.
    static EVERYWHERE: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static ACTIVE: Cell<Option<Planted>> = const { Cell::new(None) };
        static HITS: Cell<u64> = const { Cell::new(0) };
    }

    /// `bug` is on in this thread.
    #[inline]
    pub fn planted(bug: Planted) -> bool {
        let on = ACTIVE.get() == Some(bug) || EVERYWHERE.load(Relaxed) == bug as usize + 1;
        if on {
            HITS.set(HITS.get() + 1);
        }
        on
    }

    /// Turns `bug` on in all threads, until the process ends.
    pub fn everywhere(bug: Planted) {
        EVERYWHERE.store(bug as usize + 1, Relaxed);
    }

    /// The bug that is on in all threads.
    pub fn planted_everywhere() -> Option<Planted> {
        Planted::ALL.get(EVERYWHERE.load(Relaxed).checked_sub(1)?).copied()
    }

    /// Runs `body` with `bug` on in this thread; what was on before is on again afterwards, also
    /// after a panic.
    pub fn with<T>(bug: Planted, body: impl FnOnce() -> T) -> T {
        struct Restore(Option<Planted>);
        impl Drop for Restore {
            fn drop(&mut self) {
                ACTIVE.set(self.0);
            }
        }
        let _restore = Restore(ACTIVE.replace(Some(bug)));
        HITS.set(0);
        body()
    }

    /// How often a hook of the bug that is on, or was on last, was passed in this thread since
    /// [`with`] began. 0: the history never came to the line, so nothing could show the bug.
    pub fn hits() -> u64 {
        HITS.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_list_and_lead_back() {
        assert!(Planted::ALL.len() >= 26);
        for bug in Planted::ALL {
            assert_eq!(Planted::parse(bug.name()), Some(*bug));
        }
        assert_eq!(Planted::parse("nothing"), None);
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn without_the_feature_no_bug_is_ever_on() {
        const OFF: bool = planted(Planted::TableNotSynced);
        assert!(!OFF && !Planted::ALL.iter().any(|bug| planted(*bug)));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_bug_is_on_inside_with_in_its_thread_alone() {
        let bug = Planted::TableNotSynced;
        with(bug, || {
            assert!(planted(bug) && !planted(Planted::BlockNotChecked));
            assert_eq!(hits(), 1);
            let elsewhere = crate::threads::spawn("elsewhere", move || planted(bug)).unwrap();
            assert!(!elsewhere.join().unwrap());
        });
        assert!(!planted(bug));
        let panicked = std::panic::catch_unwind(|| with(bug, || panic!("on purpose")));
        assert!(panicked.is_err() && !planted(bug));
    }
}
