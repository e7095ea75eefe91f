//! A panic inside a call of a host: what the host is told, and what the handles answer from then
//! on.

use super::directories::{
    Tiers, thermocline_tiers_close, thermocline_tiers_create_file, thermocline_tiers_delete,
    thermocline_tiers_open, thermocline_tiers_open_file,
};
use super::files::{File, thermocline_file_close, thermocline_file_place, thermocline_file_synced};
use crate::handle::with;
use crate::memory::take_text;
use crate::status::Status::{THERMOCLINE_OK, THERMOCLINE_PANIC};
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{null, null_mut};

fn open(fast: &Path) -> *mut Tiers {
    let uri = format!("thermocline://?tier={}:1MiB&tier=home:1MiB", fast.display());
    let uri = CString::new(uri).unwrap();
    let (mut tiers, mut why) = (null_mut(), null_mut());
    // SAFETY: a text with a zero, and places of this frame.
    let status = unsafe { thermocline_tiers_open(uri.as_ptr(), &mut tiers, &mut why) };
    assert_eq!(status, THERMOCLINE_OK, "{}", take_text(why));
    tiers
}

#[test]
fn after_a_panic_tiers_and_files_answer_only_their_close() {
    let folder = tempfile::tempdir().unwrap();
    let (fast, home) = (folder.path().join("fast"), folder.path().join("home"));
    std::fs::create_dir(&fast).unwrap();
    let path = CString::new(home.join("000001.sst").to_str().unwrap()).unwrap();
    let path: &CStr = &path;
    let tiers = open(&fast);
    let (mut file, mut other): (*mut File, *mut File) = (null_mut(), null_mut());
    let (mut place, mut why) = (null_mut(), null_mut());
    // SAFETY: handles that are open, texts with a zero, and places of this frame.
    unsafe {
        std::fs::create_dir(&home).unwrap();
        let made = thermocline_tiers_create_file(tiers, path.as_ptr(), null(), &mut file, &mut why);
        assert_eq!(made, THERMOCLINE_OK, "{}", take_text(why));
        assert_eq!(thermocline_file_place(file, &mut place, null_mut()), THERMOCLINE_OK);
        std::fs::write(take_text(place), "bytes").unwrap();
        assert_eq!(thermocline_file_synced(file, null_mut()), THERMOCLINE_OK);

        let status = with(tiers, &mut why, |_| panic!("a tier\nis odd"));
        assert_eq!(status, THERMOCLINE_PANIC);
        let text = take_text(why);
        assert!(text.contains("a tier, is odd") && !text.contains('\n'), "{text}");

        assert_eq!(thermocline_file_place(file, &mut place, null_mut()), THERMOCLINE_PANIC);
        assert!(place.is_null(), "there is no path to give back");
        assert_eq!(thermocline_file_synced(file, null_mut()), THERMOCLINE_PANIC);
        let opened = thermocline_tiers_open_file(tiers, path.as_ptr(), &mut other, null_mut());
        assert_eq!(opened, THERMOCLINE_PANIC);
        assert!(other.is_null(), "there is no file to close");
        assert_eq!(thermocline_tiers_delete(tiers, path.as_ptr(), &mut why), THERMOCLINE_PANIC);
        assert!(take_text(why).contains("close them and open"));

        thermocline_file_close(file);
        assert_eq!(thermocline_tiers_close(tiers, null_mut()), THERMOCLINE_OK);
        let tiers = open(&fast);
        let opened = thermocline_tiers_open_file(tiers, path.as_ptr(), &mut other, &mut why);
        assert_eq!(opened, THERMOCLINE_OK, "what was synced before is there");
        assert_eq!(thermocline_file_place(other, &mut place, null_mut()), THERMOCLINE_OK);
        assert_eq!(std::fs::read(take_text(place)).unwrap(), b"bytes");
        thermocline_file_close(other);
        assert_eq!(thermocline_tiers_close(tiers, null_mut()), THERMOCLINE_OK);
    }
}
