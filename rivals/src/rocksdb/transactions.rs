//! RocksDB opened for transactions: optimistic ones, which fail at their commit where another came
//! first, or pessimistic ones, which lock what they read to update it.

use rocksdb::{
    DBAccess, DBRawIteratorWithThreadMode, Error, ErrorKind, OptimisticTransactionDB,
    OptimisticTransactionOptions, ReadOptions, Transaction, TransactionDB, TransactionOptions,
    WriteOptions,
};
use thermocline_bench::Outcome;
use thermocline_bench::store::{Change, Store, Visitor};

/// What both kinds have, each under the same names.
pub(super) trait Database: DBAccess + Send + Sync + Sized {
    type Options: Default + Send + Sync;

    fn begin(&self, write: &WriteOptions, options: &Self::Options) -> Transaction<'_, Self>;
    fn set(&self, key: &[u8], value: &[u8], write: &WriteOptions) -> Result<(), Error>;
    fn remove(&self, key: &[u8], write: &WriteOptions) -> Result<(), Error>;
    fn cursor(&self) -> DBRawIteratorWithThreadMode<'_, Self>;
    fn sync_log(&self) -> Result<(), Error>;
    fn write_out(&self) -> Result<(), Error>;
}

macro_rules! database {
    ($kind:ty, $options:ty) => {
        impl Database for $kind {
            type Options = $options;

            fn begin(&self, write: &WriteOptions, options: &$options) -> Transaction<'_, Self> {
                self.transaction_opt(write, options)
            }

            fn set(&self, key: &[u8], value: &[u8], write: &WriteOptions) -> Result<(), Error> {
                self.put_opt(key, value, write)
            }

            fn remove(&self, key: &[u8], write: &WriteOptions) -> Result<(), Error> {
                self.delete_opt(key, write)
            }

            fn cursor(&self) -> DBRawIteratorWithThreadMode<'_, Self> {
                self.raw_iterator_opt(ReadOptions::default())
            }

            fn sync_log(&self) -> Result<(), Error> {
                self.flush_wal(true)
            }

            fn write_out(&self) -> Result<(), Error> {
                self.flush()
            }
        }
    };
}

database!(OptimisticTransactionDB, OptimisticTransactionOptions);
database!(TransactionDB, TransactionOptions);

/// A database of one kind.
pub(super) struct Transactional<D: Database> {
    db: D,
    write: WriteOptions,
    options: D::Options,
}

impl<D: Database> Transactional<D> {
    pub fn new(db: D, write: WriteOptions) -> Self {
        Self { db, write, options: D::Options::default() }
    }

    /// One attempt.
    fn try_to_transact(&self, changes: &[Change<'_>]) -> Result<(), Error> {
        let transaction = self.db.begin(&self.write, &self.options);
        for change in changes {
            transaction.get_pinned_for_update(change.key, true)?;
        }
        for change in changes {
            match change.value {
                Some(value) => transaction.put(change.key, value)?,
                None => transaction.delete(change.key)?,
            }
        }
        transaction.commit()
    }
}

impl<D: Database> Store for Transactional<D> {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let found = self.db.get_pinned_opt(key, &ReadOptions::default())?;
        let Some(found) = found else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.set(key, value, &self.write)?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        Ok(self.db.remove(key, &self.write)?)
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        super::scan(self.db.cursor(), from, count, visit)
    }

    fn transact(&self, changes: &[Change<'_>]) -> Outcome<()> {
        use ErrorKind::{Aborted, Busy, TimedOut, TryAgain};
        loop {
            match self.try_to_transact(changes) {
                Err(error) if matches!(error.kind(), Aborted | Busy | TimedOut | TryAgain) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.db.sync_log()?)
    }

    /// Waits for flushes alone: these kinds cannot wait for compactions.
    fn settle(&self) -> Outcome<()> {
        Ok(self.db.write_out()?)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}
