//! The journal: round trips, torn tails against damage, and latching.

use crate::golden::{bytes_of, with_bytes, written_of};
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{assert_says, home};
use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{
    Devices, Driver, ErrorKind, File, FileKind, Journal, JournalEnd, Result, TierIndex,
};
use thermocline_foundation::{DatabaseId, FileNumber};

fn wrap(driver: Arc<dyn Driver>, is_new: bool) -> File {
    let handle = if is_new { driver.create("journal") } else { driver.open("journal") };
    let (database, number) = (DatabaseId([7; 16]), FileNumber(3));
    File::new(database, number, FileKind::Manifest, TierIndex(0), driver, handle.unwrap())
}

pub fn file_on(driver: &MemoryDriver, is_new: bool) -> File {
    wrap(Arc::new(driver.clone()), is_new)
}

pub fn frames_of(driver: &MemoryDriver) -> Result<(Vec<Vec<u8>>, JournalEnd)> {
    let mut frames = Vec::new();
    let end = Journal::read(&file_on(driver, false), |payload| {
        frames.push(payload.to_vec());
        Ok(())
    })?;
    Ok((frames, end))
}

fn journal_of(payloads: &[Vec<u8>]) -> Vec<u8> {
    let driver = MemoryDriver::new();
    let mut journal = Journal::create(Arc::new(file_on(&driver, true))).unwrap();
    payloads.iter().for_each(|payload| journal.append(payload).unwrap());
    written_of(&driver, "journal", &journal)
}

fn payload(len: usize) -> Vec<u8> {
    crate::support::content(FileNumber(len as u64), len)
}

#[test]
fn payloads_of_all_sizes_round_trip() {
    let around = [0, 480, 504, 4008, 4032, 8040, 300_000];
    let sizes = around.iter().flat_map(|at: &usize| at.saturating_sub(2)..at + 3);
    let payloads: Vec<_> = sizes.map(payload).collect();
    let driver = with_bytes("journal", &journal_of(&payloads));
    assert_eq!(frames_of(&driver).unwrap().0, payloads);
    let mut count = 0;
    let mut journal = Journal::open(Arc::new(file_on(&driver, false)), |_| {
        count += 1;
        Ok(())
    })
    .unwrap();
    journal.append(b"one more").unwrap();
    assert_eq!(count, payloads.len());
    let last = frames_of(&driver).unwrap().0.pop();
    assert_eq!(last.as_deref(), Some(&b"one more"[..]));
}

/// Every subset of a last frame's sectors is a torn frame: cut off, erased, appended over.
#[test]
fn any_part_of_the_last_frame_is_cut_off_and_erased() {
    let first = payload(700);
    let whole = journal_of(&[first.clone(), payload(3000)]);
    assert_eq!(whole.len(), 8192);
    for kept in 0..255u32 {
        for cut in [false, true] {
            let mut bytes = whole.clone();
            for sector in (0..8).filter(|sector| kept >> sector & 1 == 0) {
                bytes[4096 + sector * 512..][..512].fill(0);
            }
            if cut {
                bytes.truncate(8192 - kept.leading_zeros().saturating_sub(24) as usize * 512);
            }
            let driver = with_bytes("journal", &bytes);
            let (frames, end) = frames_of(&driver).unwrap();
            assert_eq!((frames, end.torn), (vec![first.clone()], kept != 0), "{kept:b}");
            let file = Arc::new(file_on(&driver, false));
            let mut journal = Journal::open(file, |_| Ok(())).unwrap();
            let erased = bytes_of(&driver, "journal");
            assert!(erased[4096..].iter().all(|byte| *byte == 0));
            journal.append(b"instead").unwrap();
            let frames = frames_of(&driver).unwrap().0;
            assert_eq!(frames, [first.clone(), b"instead".to_vec()]);
        }
    }
}

#[test]
fn every_flipped_byte_is_reported() {
    let whole = journal_of(&[payload(10), payload(5000), payload(100)]);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let error = frames_of(&with_bytes("journal", &bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
        assert_says(&error, &["00000003.manifest", &(at / 512 * 512).to_string(), "restore"]);
    }
}

/// What an opening makes of a journal's bytes: the payloads, and what verification says after it.
fn opened(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, Result<()>)> {
    let mut frames = Vec::new();
    let file = Arc::new(file_on(&with_bytes("journal", bytes), false));
    let journal = Journal::open(file, |payload| {
        frames.push(payload.to_vec());
        Ok(())
    })?;
    Ok((frames, journal.reread(|_| Ok(()))))
}

#[test]
fn an_opening_turns_any_one_bit_back_and_verification_reports_it() {
    let payloads = [payload(10), payload(5000), payload(100)];
    let whole = journal_of(&payloads);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let (frames, verified) = opened(&bytes).unwrap();
        assert_eq!(frames, payloads, "byte {at}");
        assert_eq!(verified.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        // A second one in the same sector is too much.
        bytes[at / 512 * 512 + (at + 77) % 512] ^= 4;
        assert_eq!(opened(&bytes).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
}

#[test]
fn a_zeroed_stale_or_misplaced_sector_before_the_last_frame_is_damage() {
    let whole = journal_of(&[payload(10), payload(5000), payload(100)]);
    let other = journal_of(&[payload(11), payload(5001), payload(101)]);
    for sector in 0..24 {
        let range = sector * 512..(sector + 1) * 512;
        let mut zeroed = whole.clone();
        zeroed[range.clone()].fill(0);
        let mut stale = whole.clone();
        stale[range.clone()].copy_from_slice(&other[range.clone()]);
        let mut misplaced = whole.clone();
        misplaced.copy_within(range.start + 512..range.end + 512, range.start);
        for (how, bytes) in [("zeroed", zeroed), ("stale", stale), ("misplaced", misplaced)] {
            match frames_of(&with_bytes("journal", &bytes)) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{how} {sector}"),
                // Padding is the same in both.
                Ok((frames, _)) => assert_eq!(frames.len(), 3, "{how} {sector}"),
            }
            assert!(how != "zeroed" || frames_of(&with_bytes("journal", &bytes)).is_err());
        }
    }
}

#[test]
fn newer_versions_are_told_from_damage() {
    use thermocline_foundation::{Place, checksum};
    let mut bytes = journal_of(&[payload(10)]);
    bytes[4..6].copy_from_slice(&2u16.to_le_bytes());
    let place = Place { database: DatabaseId([7; 16]), file: FileNumber(3), offset: 0 };
    let crc = checksum(&place, &bytes[..508]);
    bytes[508..512].copy_from_slice(&crc.to_le_bytes());
    let error = frames_of(&with_bytes("journal", &bytes)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
    assert_says(&error, &["version 2", "upgrade"]);
}

/// Two attempts at the same frame, each of which a power cut tears: sectors of both together would
/// be taken for damage.
#[test]
fn what_a_torn_frame_left_is_never_there_beside_what_was_appended_in_its_place() {
    let (first, second, third) = (payload(700), payload(3000), payload(2900));
    let mut again = 0;
    for seed in 0..400 {
        let devices = SimulatedDevices::new(Fault::None);
        devices.create_directory(&home()).unwrap();
        let file = |devices: &SimulatedDevices, is_new| {
            Arc::new(wrap(devices.home(&home()).unwrap(), is_new))
        };
        let mut journal = Journal::create(file(&devices, true)).unwrap();
        journal.append(&first).unwrap();
        devices.home(&home()).unwrap().sync_directory().unwrap();
        devices.set_fault(Fault::PowerCut(0));
        journal.append(&second).unwrap_err();

        let devices = devices.after_power_cut(Fate::Any(seed));
        let mut frames = 0;
        let mut journal = Journal::open(file(&devices, false), |_| {
            frames += 1;
            Ok(())
        });
        let journal = journal.as_mut().unwrap();
        devices.set_fault(Fault::PowerCut(0));
        journal.append(&third).unwrap_err();

        let devices = devices.after_power_cut(Fate::Any(seed + 1000));
        let mut shown = Vec::new();
        let opened = Journal::open(file(&devices, false), |payload| {
            shown.push(payload.to_vec());
            Ok(())
        });
        assert!(opened.is_ok(), "seed {seed}: {opened:?}");
        assert_eq!(shown[0], first, "seed {seed}");
        again += usize::from(frames == 1);
    }
    assert!(again > 300, "{again} frames were torn");
}

#[test]
fn a_failed_append_or_sync_refuses_all_later_ones() {
    for failing in [0, 1] {
        let devices = SimulatedDevices::new(Fault::None);
        devices.create_directory(&home()).unwrap();
        let file = wrap(devices.home(&home()).unwrap(), true);
        let mut journal = Journal::create(Arc::new(file)).unwrap();
        journal.append(b"good").unwrap();
        devices.set_fault(Fault::Once(failing));
        let first = journal.append(b"bad").unwrap_err();
        let second = journal.append(b"after").unwrap_err();
        assert_says(&second, &["takes no more changes", &first.to_string()]);
        assert_eq!(journal.frames(), 1);
    }
}
