//! A panic inside a call: what the caller is told, and what the handles answer from then on.

use super::batch::Batch;
use super::db::{
    Db, thermocline_db_close, thermocline_db_get, thermocline_db_open, thermocline_db_put,
};
use super::scan::{
    Record, Scan, thermocline_db_scan, thermocline_scan_close, thermocline_scan_next,
};
use super::snapshot::{
    Snapshot, thermocline_db_snapshot, thermocline_snapshot_close, thermocline_snapshot_get,
};
use super::ticket::{
    Ticket, thermocline_db_get_async, thermocline_ticket_close, thermocline_ticket_wait,
};
use super::transaction::{
    Transaction, thermocline_db_begin, thermocline_transaction_close, thermocline_transaction_get,
};
use crate::handle::with;
use crate::memory::take_text;
use crate::status::Status;
use crate::status::Status::{THERMOCLINE_OK, THERMOCLINE_PANIC};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};

fn open(home: &std::path::Path) -> *mut Db {
    let path = CString::new(home.to_str().unwrap()).unwrap();
    let settings =
        format!("[[tiers]]\npath = \"{}/tier\"\ncapacity = \"64 MiB\"\n", home.display());
    let settings = CString::new(settings).unwrap();
    let (mut db, mut why) = (null_mut(), null_mut());
    // SAFETY: texts with a zero, and places of this frame.
    let status =
        unsafe { thermocline_db_open(path.as_ptr(), settings.as_ptr(), &mut db, &mut why) };
    assert_eq!(status, THERMOCLINE_OK, "{}", take_text(why));
    db
}

/// What a database gives out besides records: a snapshot, a scan, a ticket, a transaction.
struct GivenOut {
    snapshot: *mut Snapshot,
    scan: *mut Scan,
    ticket: *mut Ticket,
    transaction: *mut Transaction,
}

impl GivenOut {
    fn of(db: *mut Db) -> Self {
        let (mut snapshot, mut ticket, mut transaction) = (null_mut(), null_mut(), null_mut());
        let no = null_mut;
        // SAFETY: an open database, and places of this frame.
        unsafe {
            assert_eq!(thermocline_db_snapshot(db, &mut snapshot, no()), THERMOCLINE_OK);
            let begun = thermocline_db_begin(db, null(), &mut transaction, no());
            assert_eq!(begun, THERMOCLINE_OK);
            let asked = thermocline_db_get_async(db, KEY, 1, &mut ticket, no());
            assert_eq!(asked, THERMOCLINE_OK);
            let scan = thermocline_db_scan(db, null(), 0, null(), 0);
            Self { snapshot, scan, ticket, transaction }
        }
    }

    /// What each answers to a call.
    fn answers(&self) -> [Status; 4] {
        let mut record = Record { key: null(), key_len: 0, value: null(), value_len: 0 };
        let (no, no_value, no_len) = (null_mut, null_mut, null_mut);
        // SAFETY: handles that were given out, and a place of this frame.
        unsafe {
            [
                thermocline_snapshot_get(self.snapshot, KEY, 1, no_value(), no_len(), no()),
                thermocline_scan_next(self.scan, &mut record, no()),
                thermocline_ticket_wait(self.ticket, no_value(), no_len(), no()),
                thermocline_transaction_get(self.transaction, KEY, 1, no_value(), no_len(), no()),
            ]
        }
    }

    fn close(self) {
        // SAFETY: handles that were given out, and are used no more.
        unsafe {
            thermocline_scan_close(self.scan);
            thermocline_snapshot_close(self.snapshot);
            thermocline_ticket_close(self.ticket);
            thermocline_transaction_close(self.transaction);
        }
    }
}

/// A key of one byte.
const KEY: *const c_void = c"k".as_ptr().cast();

fn get(db: *mut Db, why: *mut *mut c_char) -> Status {
    // SAFETY: an open database; `why` is a place of the caller's, or NULL.
    unsafe { thermocline_db_get(db, KEY, 1, null_mut(), null_mut(), why) }
}

#[test]
fn after_a_panic_all_handles_of_the_database_answer_only_their_close() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home.path().join("db"));
    let mut why = null_mut();
    // SAFETY: an open database, bytes and places of this frame.
    unsafe {
        assert_eq!(thermocline_db_put(db, KEY, 1, null(), 0, null_mut()), THERMOCLINE_OK);
        let untouched = GivenOut::of(db);
        assert_eq!(untouched.answers(), [THERMOCLINE_OK; 4]);
        untouched.close();
        let before = GivenOut::of(db);

        let status = with(db, &mut why, |_| panic!("a number\nis odd"));
        assert_eq!(status, THERMOCLINE_PANIC);
        let text = take_text(why);
        assert!(text.contains("a number, is odd") && !text.contains('\n'), "{text}");

        assert_eq!(get(db, &mut why), THERMOCLINE_PANIC);
        let text = take_text(why);
        assert!(text.contains("open the database again"), "{text}");
        assert_eq!(get(db, null_mut()), THERMOCLINE_PANIC, "a caller may want no text");
        assert_eq!(before.answers(), [THERMOCLINE_PANIC; 4]);
        let later = thermocline_db_scan(db, null(), 0, null(), 0);
        let mut record = Record { key: null(), key_len: 0, value: null(), value_len: 0 };
        assert_eq!(thermocline_scan_next(later, &mut record, null_mut()), THERMOCLINE_PANIC);

        thermocline_scan_close(later);
        before.close();
        assert_eq!(thermocline_db_close(db, &mut why), THERMOCLINE_OK);
        let db = open(&home.path().join("db"));
        assert_eq!(get(db, &mut why), THERMOCLINE_OK, "what was written before is there");
        assert_eq!(thermocline_db_close(db, null_mut()), THERMOCLINE_OK);
    }
}

#[test]
fn what_is_behind_a_handle_may_be_shared_or_moved_as_its_text_says() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Db>();
    shared::<Snapshot>();
    moved::<Batch>();
    moved::<Scan>();
    moved::<Ticket>();
    moved::<Transaction>();
}
