//! The rig against a machine that is made up: every step can fail, and nothing may stay.

use super::plan::tests::design;
use super::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A machine of loop devices, mounts, cgroups and files, just enough to be cleaned up.
#[derive(Debug, Default)]
struct Machine {
    files: BTreeMap<PathBuf, String>,
    folders: BTreeSet<PathBuf>,
    mounts: Vec<PathBuf>,
    loops: BTreeMap<String, PathBuf>,
    groups: BTreeSet<PathBuf>,
    /// In every cgroup.
    processes: String,
    /// Calls that change something, and which of them fails.
    calls: usize,
    failing: Option<usize>,
    user: u32,
}

#[derive(Clone, Debug)]
struct Fake(Rc<RefCell<Machine>>);

const CGROUP: &str = "/cg/memory";

impl Fake {
    fn new() -> Self {
        Self(Rc::new(RefCell::new(Machine::default())))
    }

    fn change(&self) -> Outcome<()> {
        let mut machine = self.0.borrow_mut();
        machine.calls += 1;
        if machine.failing == Some(machine.calls) {
            machine.failing = None;
            return Err("made to fail".into());
        }
        Ok(())
    }

    fn clean(&self) -> bool {
        let machine = self.0.borrow();
        let files: Vec<_> = machine.files.keys().filter(|path| path.starts_with("/run")).collect();
        files.is_empty()
            && machine.mounts.is_empty()
            && machine.loops.is_empty()
            && machine.groups.is_empty()
            && machine.folders.iter().all(|path| !path.starts_with("/disk/thermocline-rig-a"))
    }
}

impl System for Fake {
    fn run(&self, words: &[String]) -> Outcome<String> {
        if words[0] == "df" {
            return Ok("Avail\n99999999999".to_owned());
        }
        self.change()?;
        let mut machine = self.0.borrow_mut();
        let last = words.last().cloned().unwrap_or_default();
        match (words[0].as_str(), words[1].as_str()) {
            ("mount", _) => machine.mounts.push(last.into()),
            ("umount", _) => {
                let at = machine.mounts.iter().position(|mount| *mount == Path::new(&last));
                let at = at.ok_or("not mounted")?;
                // The file system under a loop device's image cannot go first.
                if machine.loops.values().any(|image| image.starts_with(&last)) {
                    return Err("busy".into());
                }
                machine.mounts.remove(at);
            }
            ("losetup", "-d") => {
                let name = last.trim_start_matches("/dev/");
                machine.loops.remove(name).ok_or("no such device")?;
            }
            ("losetup", _) => {
                let name = format!("loop{}", machine.loops.len());
                machine.loops.insert(name.clone(), last.into());
                return Ok(format!("/dev/{name}"));
            }
            _ => {}
        }
        Ok(String::new())
    }

    fn read(&self, path: &Path) -> Option<String> {
        let machine = self.0.borrow();
        let text = path.to_str()?;
        if let Some(rest) = text.strip_prefix("/sys/block/") {
            let (name, file) = rest.split_once('/')?;
            let image = machine.loops.get(name)?;
            return match file {
                "dev" => Some(format!("7:{}\n", &name[4..])),
                "loop/backing_file" => Some(image.display().to_string()),
                _ => None,
            };
        }
        Some(match text {
            "/proc/self/mounts" => {
                let mut text = format!("cgroup {CGROUP} cgroup rw,memory 0 0\n");
                text.push_str("cgroup /cg/blkio cgroup rw,blkio 0 0\n");
                for mount in &machine.mounts {
                    text.push_str(&format!("x {} ext4 rw 0 0\n", mount.display()));
                }
                text
            }
            "/proc/self/cgroup" => "4:memory:/\n".to_owned(),
            "/proc/self/status" => format!("Name: x\nUid: {0} {0} {0} {0}\n", machine.user),
            "/proc/meminfo" => "MemAvailable: 99999999 kB\n".to_owned(),
            _ if text.ends_with("cgroup.procs") => {
                machine.groups.get(path.parent()?)?;
                machine.processes.clone()
            }
            _ => machine.files.get(path)?.clone(),
        })
    }

    fn write(&self, path: &Path, text: &str) -> Outcome<()> {
        self.change()?;
        self.0.borrow_mut().files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn make(&self, path: &Path) -> Outcome<()> {
        self.change()?;
        let mut machine = self.0.borrow_mut();
        if path.starts_with(CGROUP) {
            machine.groups.insert(path.to_owned());
        } else {
            machine.folders.extend(path.ancestors().map(Path::to_path_buf));
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Vec<PathBuf> {
        let machine = self.0.borrow();
        if path == Path::new("/sys/block") {
            let names = machine.loops.keys().map(String::as_str).chain(["loop7"]);
            return names.map(|name| path.join(name)).collect();
        }
        let all = machine.files.keys().chain(&machine.folders).chain(&machine.groups);
        all.filter(|inner| inner.parent() == Some(path)).cloned().collect()
    }

    fn remove(&self, path: &Path) -> Outcome<()> {
        let mut machine = self.0.borrow_mut();
        machine.files.retain(|file, _| !file.starts_with(path));
        machine.folders.retain(|folder| !folder.starts_with(path));
        Ok(())
    }

    fn remove_empty(&self, path: &Path) -> Outcome<()> {
        self.0.borrow_mut().groups.remove(path);
        Ok(())
    }

    fn pause(&self) {}
}

fn make(fake: &Fake) -> Outcome<Rig> {
    Rig::make(design(), Rc::new(fake.clone()), None)
}

#[test]
fn a_rig_comes_up_and_goes_without_a_trace() {
    let fake = Fake::new();
    let mut rig = make(&fake).unwrap();
    assert_eq!(rig.device_names(), ["loop0", "loop1"]);
    let rule = |fake: &Fake| {
        let path = Path::new("/cg/blkio/blkio.throttle.read_iops_device");
        fake.0.borrow().files[path].clone()
    };
    assert_eq!(rule(&fake), "7:1 10000");
    rig.throttle(false).unwrap();
    assert_eq!(rule(&fake), "7:1 0");
    rig.throttle(true).unwrap();
    let cell = rig.cell(ByteSize(1 << 30)).unwrap();
    let group = Path::new("/cg/memory/thermocline-rig-a-cell");
    assert!(fake.0.borrow().groups.contains(group));
    let limit = fake.0.borrow().files[&group.join("memory.limit_in_bytes")].clone();
    assert_eq!(limit, "1073741824");
    drop(cell);
    assert!(fake.0.borrow().groups.is_empty());
    assert!(!fake.clean());
    rig.down().unwrap();
    assert!(fake.clean(), "{fake:?}");
    assert_eq!(rule(&fake), "7:1 0");
}

#[test]
fn a_rig_that_is_in_use_is_not_given_to_a_second_run() {
    let fake = Fake::new();
    let mut rig = make(&fake).unwrap();
    std::mem::forget(rig.cell(ByteSize(1 << 30)).unwrap());
    // An empty group is a leftover and hinders no run.
    std::mem::forget(rig.cell(ByteSize(1 << 30)).unwrap());
    fake.0.borrow_mut().processes = "41 42".to_owned();
    let failure = rig.cell(ByteSize(1 << 30)).err().unwrap().to_string();
    assert!(failure.contains("in use by processes 41 42"), "{failure}");
    fake.0.borrow_mut().processes.clear();
    rig.down().unwrap();
    assert!(fake.clean(), "{fake:?}");
}

#[test]
fn whichever_step_fails_nothing_stays_behind() {
    let fake = Fake::new();
    make(&fake).unwrap().down().unwrap();
    let calls = fake.0.borrow().calls;
    let mut failed = 0;
    for failing in 1..=calls {
        let fake = Fake::new();
        fake.0.borrow_mut().failing = Some(failing);
        match make(&fake) {
            Ok(rig) => drop(rig),
            Err(failure) => {
                assert!(failure.to_string().contains("made to fail"), "{failure}");
                failed += 1;
            }
        }
        // What could not be removed at the first attempt can at the second.
        let _ = remove(&fake, Some("a"));
        assert!(fake.clean(), "call {failing}: {fake:?}");
    }
    assert!(failed > 15, "only {failed} of {calls} calls belong to making");
}

#[test]
fn a_rig_whose_maker_was_killed_is_found_by_its_label_alone() {
    let fake = Fake::new();
    let mut rig = make(&fake).unwrap();
    rig.keep = true;
    std::mem::forget(rig.cell(ByteSize(1 << 30)).unwrap());
    drop(rig);
    fake.0.borrow_mut().files.remove(&state_path("a"));
    assert!(make(&fake).err().unwrap().to_string().contains("rig down --name a"));
    assert_eq!(remove(&fake, Some("b")).unwrap(), 0);
    assert!(!fake.clean());
    assert_eq!(remove(&fake, None).unwrap(), 3 + 2 + 1 + 1);
    assert!(fake.clean(), "{fake:?}");
}

#[test]
fn the_guard_removes_the_rig_unless_it_is_dismissed() {
    let fake = Fake::new();
    let mut rig = make(&fake).unwrap();
    rig.keep = true;
    drop(rig);
    assert_eq!(guard(&fake, "a", DONE.as_bytes()).unwrap(), 0);
    assert!(!fake.clean());
    assert!(guard(&fake, "a", std::io::empty()).unwrap() > 0);
    assert!(fake.clean(), "{fake:?}");
}

#[test]
fn what_the_machine_cannot_carry_is_refused_before_anything_is_made() {
    let refused = |change: &dyn Fn(&Fake, &mut Design)| {
        let (fake, mut design) = (Fake::new(), design());
        change(&fake, &mut design);
        let failure = Rig::make(design, Rc::new(fake.clone()), None).err().unwrap();
        assert!(fake.clean() && fake.0.borrow().calls == 0);
        failure.to_string()
    };
    assert!(refused(&|fake, _| fake.0.borrow_mut().user = 1000).contains("needs root"));
    assert!(refused(&|_, design| design.fast = ByteSize(1 << 50)).contains("lies in memory"));
    assert!(refused(&|_, design| design.slow = ByteSize(1 << 50)).contains("--disk"));
    assert!(refused(&|_, design| design.slow = ByteSize(1 << 20)).contains("too small"));
    assert!(refused(&|_, design| design.name = "a/b".to_owned()).contains("cannot name a rig"));
}

#[test]
fn cells_run_inside_their_limit_and_only_what_is_measured_is_throttled() {
    use crate::cell::Purpose;
    use crate::command::arguments::example_cell;
    use crate::plan::Launcher;
    use std::ffi::OsStr;

    let fake = Fake::new();
    let launcher = launcher::InRig::new(make(&fake).unwrap(), 0);
    let rule = || {
        let path = Path::new("/cg/blkio/blkio.throttle.read_iops_device");
        fake.0.borrow().files[path].clone()
    };
    let mut cell = example_cell();
    let program = Path::new("/bin/x");
    assert!(launcher.command(program, &[], &cell).is_err(), "there is no limit");
    cell.memory_limit = Some(ByteSize(1 << 26));
    let (name, path) = (crate::store::REGION.to_owned(), "/run/region".into());
    cell.tiers = vec![crate::store::TierSpace { name, path, capacity: ByteSize(1000) }];
    // A process that loads makes the region, too.
    for (purpose, expected, bytes) in
        [(Purpose::Load, "7:1 0", "268436456"), (Purpose::Run, "7:1 10000", "67108864")]
    {
        cell.purpose = purpose;
        let command = launcher.command(program, &["cell".to_owned()], &cell).unwrap();
        assert_eq!(rule(), expected);
        let words: Vec<&OsStr> = command.get_args().collect();
        let group = "/cg/memory/thermocline-rig-a-cell";
        assert_eq!(words[2..], [&*format!("{group}/cgroup.procs"), "/bin/x", "cell"]);
        let limit = format!("{group}/memory.limit_in_bytes");
        assert_eq!(fake.0.borrow().files[Path::new(&limit)], bytes);
        let peak = format!("{group}/memory.max_usage_in_bytes");
        fake.0.borrow_mut().files.insert(peak.into(), "33554432".to_owned());
        launcher.ended(&cell).unwrap();
        assert_eq!(rule(), "7:1 0");
        assert!(fake.0.borrow().groups.is_empty());
    }
    launcher.command(program, &[], &cell).unwrap();
    let events = "/cg/memory/thermocline-rig-a-cell/memory.oom_control";
    let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n".to_owned();
    fake.0.borrow_mut().files.insert(events.into(), text);
    let failure = launcher.ended(&cell).unwrap_err().to_string();
    assert!(failure.contains("over its limit of 64 MiB"), "{failure}");
    let findings: Vec<_> = launcher.findings().into_values().collect();
    assert_eq!(findings, ["32 MiB of memory, 0 B of fast tier"]);
    assert!(launcher.notes()["slow profile"].contains("riops=10000"));
    launcher.down().unwrap();
    assert!(fake.clean(), "{fake:?}");
}
