//! `rig up | run | down | status`: the rig from the command line.

use super::plan::{Design, Medium};
use super::profile::Profile;
use super::system::{Kernel, System};
use super::{Rig, guard, machine, remove};
use crate::Outcome;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use thermocline_foundation::ByteSize;

/// What to do with a rig.
#[derive(Debug, clap::Subcommand)]
pub enum RigCommand {
    /// Make two block devices and leave them up
    Up {
        #[command(flatten)]
        design: DesignArguments,
        /// Print the steps and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Run a program inside the limits, with FAST and SLOW naming the two directories; makes a rig
    /// for it where none is up
    Run {
        #[command(flatten)]
        design: DesignArguments,
        /// Memory of the program and of all it starts, page cache included
        #[arg(long, default_value = "1GiB", value_name = "SIZE")]
        memory: ByteSize,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Remove a rig, also one whose maker was killed
    Down {
        /// Which one
        #[arg(long, default_value = "main")]
        name: String,
        /// Every rig on this machine
        #[arg(long)]
        all: bool,
    },
    /// Say what is there of rigs
    Status,
    /// Remove a rig when the process that started this one is gone
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        name: String,
    },
}

/// What a rig is to be.
#[derive(Clone, Debug, clap::Args)]
pub struct DesignArguments {
    /// Tells rigs apart that are up at once: a-z and 0-9
    #[arg(long, default_value = "main")]
    pub name: String,
    /// What the slow device can do: gp3 (10,000 IOPS, 300 MB/s) or qlc (20,000 read IOPS)
    #[arg(long, default_value = "gp3")]
    pub profile: String,
    /// What the fast device is made of
    #[arg(long, value_enum, default_value = "ram")]
    pub medium: Medium,
    /// Capacity of the fast device
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub fast: ByteSize,
    /// Capacity of the slow device
    #[arg(long, default_value = "4GiB", value_name = "SIZE")]
    pub slow: ByteSize,
    /// A directory on the disk that carries the slow device
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    pub disk: PathBuf,
}

impl DesignArguments {
    /// The design, with the profile found.
    pub fn design(&self) -> Outcome<Design> {
        Ok(Design {
            name: self.name.clone(),
            disk: self.disk.clone(),
            fast: self.fast,
            slow: self.slow,
            profile: Profile::find(&self.profile)?,
            medium: self.medium,
        })
    }
}

/// Does it, and says what went wrong.
pub fn main(command: &RigCommand) -> ExitCode {
    run(command).unwrap_or_else(|failure| {
        // Where standard error is gone too, no message can reach the user.
        let _ = writeln!(std::io::stderr(), "rig: {failure}");
        ExitCode::FAILURE
    })
}

/// Does it; the status is that of the program for `run`.
pub fn run(command: &RigCommand) -> Outcome<ExitCode> {
    let mut out = std::io::stdout().lock();
    match command {
        RigCommand::Up { design, dry_run: true } => {
            let design = design.design()?;
            for step in design.steps(&machine::groups(&Kernel)?) {
                writeln!(out, "{step}")?;
            }
        }
        RigCommand::Up { design, .. } => {
            let rig = Rig::up(design.design()?)?;
            say(&mut out, &rig)?;
            let name = &rig.design().name;
            writeln!(out, "remove it with: rig down --name {name}")?;
        }
        RigCommand::Run { design, memory, command } => {
            drop(out);
            return run_inside(design, *memory, command);
        }
        RigCommand::Down { name, all } => {
            let count = remove(&Kernel, (!all).then_some(name.as_str()))?;
            writeln!(out, "rig: removed {count} mounts, devices, cgroups and folders")?;
        }
        RigCommand::Status => {
            let left = machine::leftovers(&Kernel, None, Vec::new());
            if left.is_empty() {
                writeln!(out, "rig: none is up")?;
            }
            for path in left.mounts.iter().chain(&left.groups) {
                writeln!(out, "{}", path.display())?;
            }
            for (device, _, image) in &left.loops {
                writeln!(out, "/dev/{device} {}", image.display())?;
            }
        }
        RigCommand::Guard { name } => {
            let count = guard(&Kernel, name, std::io::stdin().lock())?;
            if count > 0 {
                let name = name.as_str();
                let text = format!("rig '{name}' removed after its maker ended\n");
                std::io::stderr().write_all(text.as_bytes())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(out: &mut dyn Write, rig: &Rig) -> Outcome<()> {
    let [fast, slow] = rig.device_names();
    writeln!(out, "FAST={} (/dev/{fast}, {})", rig.fast().display(), rig.design().fast)?;
    let (size, profile) = (rig.design().slow, rig.design().profile.name);
    writeln!(out, "SLOW={} (/dev/{slow}, {size}, {profile})", rig.slow().display())?;
    Ok(())
}

fn run_inside(design: &DesignArguments, memory: ByteSize, command: &[String]) -> Outcome<ExitCode> {
    let (program, arguments) = command.split_first().ok_or("no program to run")?;
    let mut rig = match Rig::find(&design.name)? {
        Some(rig) => rig,
        None => Rig::for_this_run(design.design()?)?,
    };
    let (fast, slow) = (rig.fast(), rig.slow());
    let names = rig.device_names();
    let cell = rig.cell(memory)?;
    let status = cell
        .command(program.as_ref())
        .args(arguments)
        .env("FAST", fast)
        .env("SLOW", slow)
        .env("FAST_DEVICE", &names[0])
        .env("SLOW_DEVICE", &names[1])
        .status()
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    drop(cell);
    // A rig that was up before stays up, one that was made for this goes.
    drop(rig);
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Fails where this machine can have no rig. A caller that can do without a rig asks before it
/// makes one.
pub fn possible(design: &Design) -> Outcome<()> {
    machine::check(&Kernel as &dyn System, design)?;
    machine::groups(&Kernel).map(drop)
}
