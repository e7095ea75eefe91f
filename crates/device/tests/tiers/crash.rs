//! Power cuts at every operation of a life: creation, publishing, moving, recycling, deleting,
//! closing, reopening.

use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{
    Buffer, Devices, Error, ErrorKind, FileKind, Operation, Result, TierIndex, TieredFiles,
};
use thermocline_foundation::FileNumber;

/// What the program was told, and so may rely on.
#[derive(Debug, Default)]
struct Acknowledged {
    created: bool,
    /// Published files and their kinds.
    files: BTreeMap<FileNumber, FileKind>,
    deleted: BTreeSet<FileNumber>,
    /// What is being done to a file now: it may show as before or as after.
    uncertain: BTreeSet<FileNumber>,
    /// Every number ever given out.
    numbers: BTreeSet<FileNumber>,
}

const LEN: usize = 5 * 512;

impl Acknowledged {
    fn add(
        &mut self,
        files: &TieredFiles,
        context: thermocline_device::FileContext,
    ) -> Result<FileNumber> {
        let file = files.create_file(context, LEN as u64)?;
        assert!(self.numbers.insert(file.number()), "number {} was used before", file.number());
        fill(&file, LEN)?;
        self.uncertain.insert(file.number());
        files.publish(&[file.number()])?;
        self.settle(file.number(), Some(context.kind));
        Ok(file.number())
    }

    fn delete(&mut self, files: &TieredFiles, number: FileNumber) -> Result<()> {
        self.uncertain.insert(number);
        files.delete_files(&[number])?;
        self.settle(number, None);
        Ok(())
    }

    fn settle(&mut self, number: FileNumber, kind: Option<FileKind>) {
        self.uncertain.remove(&number);
        match kind {
            Some(kind) => drop(self.files.insert(number, kind)),
            None => {
                self.files.remove(&number);
                self.deleted.insert(number);
            }
        }
    }
}

/// A life, up to the failure.
fn live(devices: &SimulatedDevices, known: &mut Acknowledged) -> Result<()> {
    if !known.created {
        create_with_text(devices, 2, "the first")?.close(&[])?;
        known.created = true;
    }
    let files = open(devices)?;
    files.set_map_room_bytes(40 << 10);
    let tables = (0..3).map(|_| known.add(&files, TABLE)).collect::<Result<Vec<_>>>()?;
    let log = known.add(&files, LOG)?;
    files.migrate(tables[0], TierIndex(1), &mut |_| {})?;
    known.uncertain.insert(tables[1]);
    files.reclassify(tables[1], FileKind::Table { level: 3 })?;
    known.settle(tables[1], Some(FileKind::Table { level: 3 }));
    let unpublished = files.create_file(TABLE, LEN as u64)?;
    assert!(known.numbers.insert(unpublished.number()));
    known.delete(&files, tables[2])?;
    known.uncertain.insert(log);
    let recycled = files.recycle(log, LOG)?;
    assert!(known.numbers.insert(recycled.number()), "recycled into a used number");
    known.settle(log, None);
    fill(&recycled, LEN)?;
    known.uncertain.insert(recycled.number());
    files.publish(&[recycled.number()])?;
    known.settle(recycled.number(), Some(FileKind::Log));
    files.migrate(tables[0], TierIndex(0), &mut |_| {})?;
    files.close(&[])
}

/// Opens and compares; twice, because opening must not change what is there.
fn check(devices: &SimulatedDevices, known: &Acknowledged, what: &str) -> Result<()> {
    for _ in 0..2 {
        let files = open(devices)?;
        let found: BTreeMap<_, _> =
            files.files().into_iter().map(|file| (file.number, file)).collect();
        for (number, kind) in &known.files {
            if known.uncertain.contains(number) {
                continue;
            }
            let file = found.get(number).unwrap_or_else(|| panic!("{what}: {number} is lost"));
            assert_eq!(file.kind, *kind, "{what}");
        }
        for (number, file) in &found {
            assert!(!known.deleted.contains(number), "{what}: {number} is back");
            assert!(
                known.files.contains_key(number) || known.uncertain.contains(number),
                "{what}: {number} was never published"
            );
            assert_content(&files, *number, LEN);
            let name = format!("{number}.{}", file.kind.extension());
            let here = |tier| names(devices, &tier_path(tier)).contains(&name);
            assert_eq!([here(0), here(1)].map(usize::from).iter().sum::<usize>(), 1, "{what}");
        }
        let on_disk = [names(devices, &tier_path(0)), names(devices, &tier_path(1))].concat();
        let data = on_disk.iter().filter(|name| *name != "TIER" && !name.ends_with(".map"));
        assert_eq!(data.count(), found.len(), "{what}: leftovers in {on_disk:?}");
        let maps = on_disk.iter().filter(|name| name.ends_with(".map")).count();
        assert_eq!(maps, 1, "{what}: {on_disk:?}");
        let fresh = files.create_file(TABLE, 0)?;
        assert!(!known.numbers.contains(&fresh.number()), "{what}: a number is used again");
    }
    Ok(())
}

/// A creation that the power cut short leaves a database or none; never one that cannot be told.
/// Where there is none, the next one finds nothing in its way, whatever it is to make, and the
/// power may cut that short too.
fn check_creation(devices: &SimulatedDevices, what: &str) {
    match open(devices) {
        Ok(files) => return assert_eq!(files.files(), [], "{what}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}"),
    }
    for again in 0.. {
        let next = devices.after_power_cut(Fate::Any(again));
        next.set_fault(Fault::PowerCut(again));
        // One tier for two: what is left on the other is in no file's way.
        let made = create_with_text(&next, 1, "the second").is_ok();
        let cut = next.is_dead();
        let last = next.after_power_cut(Fate::Any(again + 1));
        if open(&last).is_err() {
            let files = create_with_text(&last, 2, "the third");
            files.unwrap_or_else(|error| panic!("{what}, then {again}: {error}"));
            let text = TieredFiles::read_home_file(&last, &home(), TEXT_NAME).unwrap();
            assert_eq!(text.as_deref(), Some("the third"), "{what}, then {again}");
            assert_eq!(names(&last, &home()), ["DATABASE", TEXT_NAME]);
            assert_eq!(names(&last, &tier_path(1)), ["TIER"]);
        }
        if made && !cut {
            break;
        }
    }
}

const TEXT_NAME: &str = "text.toml";

fn create_with_text(devices: &SimulatedDevices, tiers: usize, text: &str) -> Result<TieredFiles> {
    let texts = [(TEXT_NAME, text)];
    TieredFiles::create_with_texts(devices, &home(), &specs(tiers), policy(), &texts)
}

fn fates(seed: u64) -> [Fate; 5] {
    [Fate::Kept, Fate::Lost, Fate::Any(seed), Fate::Any(seed + 1), Fate::Any(seed + 2)]
}

#[test]
fn power_cut_at_every_operation_keeps_what_was_acknowledged() {
    let all = SimulatedDevices::new(Fault::None);
    live(&all, &mut Acknowledged::default()).unwrap();
    let changes = all.changes();
    assert!(changes > 100, "{changes}");
    for after in 0..changes {
        let devices = SimulatedDevices::new(Fault::PowerCut(after));
        let mut known = Acknowledged::default();
        live(&devices, &mut known).unwrap_err();
        assert!(devices.is_dead());
        for fate in fates(after * 16) {
            let what = format!("cut after {after} of {changes}, {fate:?}");
            let restarted = devices.after_power_cut(fate);
            if known.created {
                check(&restarted, &known, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
            } else {
                check_creation(&restarted, &what);
            }
        }
    }
}

/// A killed process leaves names and bytes that the next one sees and a power cut may take away.
#[test]
fn power_cuts_while_opening_after_a_kill_and_after_it_are_recovered_from() {
    let all = SimulatedDevices::new(Fault::None);
    live(&all, &mut Acknowledged::default()).unwrap();
    for after in 0..all.changes() {
        let devices = SimulatedDevices::new(Fault::PowerCut(after));
        let mut known = Acknowledged::default();
        live(&devices, &mut known).unwrap_err();
        if !known.created {
            continue;
        }
        // The cut comes at every operation of the opening, and after it.
        for again in 0.. {
            let killed = devices.after_kill();
            killed.set_fault(Fault::PowerCut(again));
            let opened = open(&killed).is_ok();
            for fate in fates(after * 16 + again) {
                let what = format!("kill after {after}, cut after {again}, {fate:?}");
                let restarted = killed.after_power_cut(fate);
                check(&restarted, &known, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            if opened && !killed.is_dead() {
                break;
            }
        }
    }
}

#[test]
fn power_cuts_during_recovery_are_recovered_from() {
    let all = SimulatedDevices::new(Fault::None);
    live(&all, &mut Acknowledged::default()).unwrap();
    for after in (40..all.changes()).step_by(7) {
        let devices = SimulatedDevices::new(Fault::PowerCut(after));
        let mut known = Acknowledged::default();
        live(&devices, &mut known).unwrap_err();
        if !known.created {
            continue;
        }
        for again in 0.. {
            let once = devices.after_power_cut(Fate::Any(after));
            once.set_fault(Fault::PowerCut(again));
            let opened = open(&once).is_ok();
            let twice = once.after_power_cut(Fate::Any(after + again));
            twice.set_fault(Fault::PowerCut(again / 2));
            let _cut_or_not = open(&twice);
            let what = format!("cut after {after}, then {again}, then {}", again / 2);
            let last = twice.after_power_cut(Fate::Any(again));
            check(&last, &known, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
            if opened && !once.is_dead() {
                break;
            }
        }
    }
}

/// The copies of the first tier's identity after a power cut.
fn identity_copies(devices: &SimulatedDevices, fate: Fate) -> [Vec<u8>; 2] {
    let driver = devices.after_power_cut(fate).home(&tier_path(0)).unwrap();
    let file = driver.open("TIER").unwrap();
    [0, PAGE_BYTES as u64].map(|offset| {
        let read = Operation::Read { offset, buffer: Buffer::zeroed(PAGE_BYTES) };
        driver.execute(&file, read).buffer.to_vec()
    })
}

/// A device that loses power may damage what it is writing.
#[test]
fn of_the_two_copies_of_an_identity_one_is_never_in_flight() {
    let mut counts = [0; 3];
    for after in 0.. {
        let devices = SimulatedDevices::new(Fault::None);
        create(&devices, 1).unwrap().close(&[]).unwrap();
        devices.set_fault(Fault::PowerCut(after));
        let _cut_or_not = open(&devices).and_then(|files| files.close(&[]));
        let [kept, lost] = [Fate::Kept, Fate::Lost].map(|fate| identity_copies(&devices, fate));
        counts[(0..2).filter(|copy| kept[*copy] != lost[*copy]).count()] += 1;
        if !devices.is_dead() {
            break;
        }
    }
    let [_, one, both] = counts;
    assert!(one >= 4 && both == 0, "one in flight: {one} times, both: {both} times");
}

/// The last call of a creation fails, which may or may not have reached the device, and the power
/// is cut while the creation is undone.
#[test]
fn a_creation_whose_last_call_failed_is_none_before_anything_of_it_goes() {
    let all = SimulatedDevices::new(Fault::None);
    let files = create_with_text(&all, 2, "the first").unwrap();
    let last = all.changes() - 1;
    drop(files);
    let mut cuts = 0;
    for after in last + 1.. {
        let devices = SimulatedDevices::new(Fault::OnceAndPowerCut(last, after));
        create_with_text(&devices, 2, "the first").unwrap_err();
        for fate in fates(after * 16) {
            let what = format!("change {last} fails, cut after {after}, {fate:?}");
            check_creation(&devices.after_power_cut(fate), &what);
        }
        if !devices.is_dead() {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 8, "{cuts} calls undo a creation");
}

/// A compaction of the file map fails in any of its calls. The map before it goes on, and what was
/// made of the new one comes back in no power cut.
#[test]
fn a_file_map_whose_making_failed_is_not_the_map_after_a_power_cut() {
    let table = |level| FileKind::Table { level };
    let mut struck = 0;
    for after in 0.. {
        let devices = SimulatedDevices::new(Fault::None);
        create(&devices, 1).unwrap().close(&[]).unwrap();
        let files = open(&devices).unwrap();
        let number = add(&files, TABLE, LEN).unwrap();
        files.set_map_room_bytes(0);
        devices.set_fault(Fault::Once(after));
        let mut told = u8::from(files.reclassify(number, table(1)).is_ok());
        let is_struck = devices.changes() > after;
        // One more change, of the map that there is.
        files.set_map_room_bytes(1 << 20);
        if files.reclassify(number, table(2)).is_ok() {
            told = 2;
        }
        for fate in (0..24).map(Fate::Any).chain([Fate::Kept, Fate::Lost]) {
            let what = format!("change {after} fails, {fate:?}");
            let opened = open(&devices.after_power_cut(fate));
            let found = opened.unwrap_or_else(|error| panic!("{what}: {error}")).files();
            let kinds: Vec<_> = found.iter().map(|file| file.kind).collect();
            let is_right = |level| level >= told && kinds == [table(level)];
            assert!((0..=2).any(is_right), "{what}: {kinds:?}, level {told} was told");
        }
        if !is_struck {
            break;
        }
        struck += 1;
    }
    assert!(struck >= 5, "{struck} calls were struck");
}

#[test]
fn an_error_at_any_operation_leaves_a_database_that_opens() {
    let all = SimulatedDevices::new(Fault::None);
    live(&all, &mut Acknowledged::default()).unwrap();
    for after in 0..all.changes() {
        let devices = SimulatedDevices::new(Fault::Once(after));
        let mut known = Acknowledged::default();
        let result: Result<(), Error> = live(&devices, &mut known);
        if !known.created {
            assert!(result.is_err());
            check_creation_after_error(&devices, after);
            continue;
        }
        let what = format!("error after {after}: {result:?}");
        check(&devices, &known, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Creation either removed all it made or, where it was the removal that could not be, left what it
/// can name.
fn check_creation_after_error(devices: &SimulatedDevices, after: u64) {
    match create(devices, 2) {
        Ok(files) => assert_eq!(files.files(), []),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{after}: {error}");
            assert!(open(devices).is_ok(), "{after}: {error}");
        }
    }
}
