//! A panic inside a call: what the caller is told, and what the handles answer from then on.

use super::db::{
    Db, thermocline_db_close, thermocline_db_get, thermocline_db_open, thermocline_db_put,
};
use super::scan::{Record, thermocline_db_scan, thermocline_scan_close, thermocline_scan_next};
use super::snapshot::{
    Snapshot, thermocline_db_snapshot, thermocline_snapshot_close, thermocline_snapshot_get,
};
use crate::handle::with;
use crate::memory::thermocline_free;
use crate::status::Status;
use crate::status::Status::{THERMOCLINE_NOT_FOUND, THERMOCLINE_OK, THERMOCLINE_PANIC};
use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

/// The text of an answer, which it gives back.
fn take_text(why: *mut c_char) -> String {
    assert!(!why.is_null(), "there is no text");
    // SAFETY: the library gave the text, and it is given back once.
    unsafe {
        let text = CStr::from_ptr(why).to_str().unwrap().to_owned();
        thermocline_free(why.cast());
        text
    }
}

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

#[test]
fn after_a_panic_all_handles_of_the_database_answer_only_their_close() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home.path().join("db"));
    let (mut snapshot, mut why): (*mut Snapshot, _) = (null_mut(), null_mut());
    let mut record = Record { key: null(), key_len: 0, value: null(), value_len: 0 };
    // SAFETY: handles that were given out, bytes and places of this frame.
    unsafe {
        let put = || thermocline_db_put(db, c"k".as_ptr().cast(), 1, null(), 0, &mut null_mut());
        assert_eq!(put(), THERMOCLINE_OK);
        assert_eq!(thermocline_db_snapshot(db, &mut snapshot, null_mut()), THERMOCLINE_OK);
        let scan = thermocline_db_scan(db, null(), 0, null(), 0);

        let status = with(db, &mut why, |_| panic!("a number\nis odd"));
        assert_eq!(status, THERMOCLINE_PANIC);
        let text = take_text(why);
        assert!(text.contains("a number, is odd") && !text.contains('\n'), "{text}");

        let get =
            |why| thermocline_db_get(db, c"k".as_ptr().cast(), 1, null_mut(), null_mut(), why);
        assert_eq!(get(&mut why), THERMOCLINE_PANIC);
        let text = take_text(why);
        assert!(text.contains("open the database again"), "{text}");
        assert_eq!(get(null_mut()), THERMOCLINE_PANIC, "a caller may want no text");
        let of_snapshot = thermocline_snapshot_get(
            snapshot,
            c"k".as_ptr().cast(),
            1,
            null_mut(),
            null_mut(),
            null_mut(),
        );
        assert_eq!(of_snapshot, THERMOCLINE_PANIC);
        assert_eq!(thermocline_scan_next(scan, &mut record, null_mut()), THERMOCLINE_PANIC);
        let later = thermocline_db_scan(db, null(), 0, null(), 0);
        assert_eq!(thermocline_scan_next(later, &mut record, null_mut()), THERMOCLINE_PANIC);

        thermocline_scan_close(scan);
        thermocline_scan_close(later);
        thermocline_snapshot_close(snapshot);
        assert_eq!(thermocline_db_close(db, &mut why), THERMOCLINE_OK);
    }
    let db = open(&home.path().join("db"));
    // SAFETY: as above.
    unsafe {
        let key = c"k".as_ptr().cast();
        let found: Status = thermocline_db_get(db, key, 1, null_mut(), null_mut(), null_mut());
        assert_eq!(found, THERMOCLINE_OK, "what was written before is there");
        let none = thermocline_db_get(db, key, 0, null_mut(), null_mut(), &mut why);
        assert_eq!((none, why.is_null()), (THERMOCLINE_NOT_FOUND, true));
        assert_eq!(thermocline_db_close(db, null_mut()), THERMOCLINE_OK);
    }
}
