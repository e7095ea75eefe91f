//! Checking a whole database: every byte of every table, log and manifest and every live slot is
//! read and compared with its checksum, and what one file says of another is compared with the
//! other.

use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::jobs::Progress;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::{FileInfo, FileKind};
use thermocline_log::LogReader;

/// What a verification found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries of all tables, older versions and tombstones included.
    pub entries: u64,
    /// What is wrong; empty if all is well.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// Nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Something wrong with a file.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The file's name in its tier.
    pub file: String,
    /// The tier, 0 being the fastest.
    pub tier: u8,
    /// What the caller can do.
    pub kind: ErrorKind,
    /// What is wrong, with the offset where there is one.
    pub text: String,
}

impl Engine {
    /// See the module's header. Problems are gathered, not returned as errors, so that one damaged
    /// file does not hide the next.
    pub fn verify(self: &Arc<Self>, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let state = self.versions.current_full();
        let mut report = VerifyReport::default();
        let mut files = self.shared.files.files();
        files.retain(|info| info.published);
        // Tables of this moment are held by `state`; other files may end while we read, and are
        // skipped then.
        let tables: Vec<_> = state.levels.tables().map(|(_, table)| Arc::clone(table)).collect();
        let table_bytes: u64 = tables.iter().map(|table| table.meta.bytes).sum();
        // What is not published may not be written yet.
        let is_other = |info: &&FileInfo| !matches!(info.kind, FileKind::Table { .. });
        let others = files.iter().filter(|info| info.published).filter(is_other);
        let total_bytes = table_bytes + others.clone().map(|info| info.bytes).sum::<u64>();
        let mut done_bytes = 0;
        for table in &tables {
            let checked = table.reader().and_then(|reader| {
                let summary = reader.verify(&mut |bytes| {
                    done_bytes += bytes;
                    progress(Progress { done_bytes, total_bytes });
                })?;
                Ok(summary.entries)
            });
            report.files += 1;
            report.bytes += table.meta.bytes;
            match checked {
                Ok(entries) => report.entries += entries,
                Err(error) => {
                    let info = files.iter().find(|info| info.number == table.meta.number);
                    let tier = info.map_or(0, |info| info.tier.0);
                    report.problems.push(Problem {
                        file: format!("{}.table", table.meta.number),
                        tier,
                        kind: error.kind(),
                        text: error.to_string(),
                    });
                }
            }
        }
        if let Err(error) = state.levels.check() {
            report.problems.push(Problem {
                file: "manifest".to_owned(),
                tier: 0,
                kind: error.kind(),
                text: error.to_string(),
            });
        }
        self.verify_layout(&files, &mut report, &mut |bytes| {
            done_bytes += bytes;
            progress(Progress { done_bytes: done_bytes.min(total_bytes), total_bytes });
        });
        for info in others {
            self.verify_other(info, &mut report);
            if info.kind != FileKind::Slab {
                done_bytes += info.bytes;
            }
            progress(Progress { done_bytes: done_bytes.min(total_bytes), total_bytes });
        }
        self.verify_region(&mut report);
        self.report_mended(&mut report);
        for (tier, problem) in self.shared.files.verify_metadata() {
            report.problems.push(Problem {
                file: "identity or file map".to_owned(),
                tier: tier.0,
                kind: crate::Error::from(problem.clone()).kind(),
                text: problem.to_string(),
            });
        }
        Ok(report)
    }

    /// What memtables and the index have in persistent memory.
    fn verify_region(&self, report: &mut VerifyReport) {
        let Some((bytes, checked)) = self.front.verify_region() else { return };
        report.files += 1;
        report.bytes += bytes;
        let index = self.layout.locator().verify();
        for error in [checked, index].into_iter().filter_map(Result::err) {
            report.problems.push(Problem {
                file: "region of persistent memory".to_owned(),
                tier: 0,
                kind: error.kind(),
                text: error.to_string(),
            });
        }
    }

    /// The damage of logs that the opening met. Their records have been written anew, so no other
    /// file has it.
    fn report_mended(&self, report: &mut VerifyReport) {
        report.problems.extend(self.mended.iter().map(|(number, tier, error)| Problem {
            file: format!("{number}.log"),
            tier: tier.0,
            kind: error.kind(),
            text: error.to_string(),
        }));
    }

    /// The records that the layout keeps beside tables.
    fn verify_layout(
        &self,
        files: &[FileInfo],
        report: &mut VerifyReport,
        read: &mut dyn FnMut(u64),
    ) {
        let checked = self.layout.verify(read);
        report.entries += checked.entries;
        for (number, problem) in checked.problems {
            let info = files.iter().find(|info| info.number == number);
            report.problems.push(Problem {
                file: format!("{number}.slab"),
                tier: info.map_or(0, |info| info.tier.0),
                kind: crate::Error::from(problem.clone()).kind(),
                text: problem.to_string(),
            });
        }
    }

    /// Logs and manifests. They are in use, so the check keeps their writers out while it reads
    /// them.
    fn verify_other(&self, info: &FileInfo, report: &mut VerifyReport) {
        let checked = match info.kind {
            FileKind::Log => self.verify_log(info).or_else(|_| {
                // A flush may have been ending the log just now.
                self.shared.clock.sleep(Duration::from_millis(50));
                self.verify_log(info)
            }),
            FileKind::Manifest => {
                let tables = self.versions.tables();
                // One that was replaced meanwhile says nothing any more.
                let in_use = tables.manifest.number() == info.number;
                if in_use { tables.manifest.verify() } else { Ok(()) }
            }
            FileKind::Table { .. } | FileKind::Slab | FileKind::Map => Ok(()),
            // Checked where they are read, and no authority.
            FileKind::TableIndex | FileKind::BlockCache => Ok(()),
        };
        report.files += 1;
        report.bytes += info.bytes;
        if let Err(error) = checked
            && self.still_has(info).is_some()
        {
            report.problems.push(Problem {
                file: format!("{}.{}", info.number, info.kind.extension()),
                tier: info.tier.0,
                kind: error.kind(),
                text: error.to_string(),
            });
        }
    }

    fn still_has(&self, info: &FileInfo) -> Option<FileInfo> {
        self.shared.files.files().into_iter().find(|now| now.number == info.number)
    }

    /// Writers pause while a log is read, for as long as reading a memtable's worth takes.
    fn verify_log(&self, info: &FileInfo) -> Result<()> {
        let quiet = self.front.enter();
        if quiet.number() == info.number {
            quiet.hand_over_log()?;
        }
        // A log that waits to be recycled holds nothing any more.
        let retired = self.front.is_retired(info.number);
        if retired || self.still_has(info).is_none() {
            return Ok(());
        }
        let file = self.shared.files.open_file(info.number)?;
        LogReader::replay(&file, &mut |_, _, _| Ok(()))?;
        Ok(())
    }
}
