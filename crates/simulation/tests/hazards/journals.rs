//! Frames of the manifest and the file map whose sync failed: the page cache has them, marked as
//! clean, and the device does not.

use crate::{life, put_each};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::devices::{CallKind, Fault, FaultKind, Loss};
use thermocline_simulation::history::Step;
use thermocline_simulation::life::{Life, Stop};

/// The input/output error of the operating system.
const EIO: i32 = 5;

/// Records that the next flush brings into slots.
fn life_before_a_flush(seed: u64) -> Result<Life, Stop> {
    let mut life = life(seed, (98, 95));
    put_each(&mut life, 0..8, 1, 300)?;
    Ok(life)
}

/// A sync of a flush fails and the process ends. The next one goes on, and then the power fails:
/// nothing that it appended may lie behind a frame that never reached the device.
fn power_cut_after_a_failed_sync() -> Result<(), Stop> {
    let mut syncs_failed = 0;
    for seed in [4, 8, 12] {
        let mut first = life_before_a_flush(seed)?;
        first.machine.devices.record_made();
        let start = first.machine.devices.calls();
        first.step(&Step::Flush)?;
        let kinds = first.machine.devices.kinds();
        let syncs = (0..kinds.len()).filter(|at| kinds[*at] == CallKind::Sync);
        for at in syncs.map(|at| start + at as u64) {
            let mut life = life_before_a_flush(seed)?;
            life.machine.devices.arm(Some(Fault {
                at,
                sticky: false,
                kind: FaultKind::Error(EIO),
            }));
            match life.step(&Step::Flush) {
                Ok(()) => {}
                Err(Stop::Failed(_)) => syncs_failed += 1,
                Err(stop) => return Err(stop),
            }
            life.machine.devices.arm(None);
            let world = life.machine.devices.look(|world| world.after(Loss::None));
            life.restart(world, true)?;
            put_each(&mut life, 8..10, 2, 300)?;
            life.step(&Step::Flush)?;
            let world = life.machine.devices.look(|world| world.after(Loss::All));
            life.restart(world, false)?;
            life.check_all()?;
            life.check_tidy()?;
        }
    }
    assert!(syncs_failed > 0);
    Ok(())
}

scripts! {
    a_frame_whose_sync_failed_is_written_again_before_another_follows:
        power_cut_after_a_failed_sync, LastFrameNotRewritten;
}
