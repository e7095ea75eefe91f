//! How a log comes to be: its size, its header, and its place in the namespace.

use crate::error::{ErrorKind, Result};
use crate::recovery::delete_or_leave;
use crate::settings::{Durability, Settings};
use crate::state::LogFile;
use std::sync::Arc;
use thermocline_device::{File, FileContext, FileKind, Origin, TieredFiles};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{LogHeader, LogSettings, LogWriter};

fn log_settings(settings: &Settings) -> LogSettings {
    let segment_bytes = settings.log_bytes();
    let growth_bytes = (segment_bytes / 4).clamp(64 << 10, 16 << 20);
    let buffer_bytes = (settings.division().memtable_bytes / 16).clamp(64 << 10, 512 << 10);
    LogSettings { segment_bytes, growth_bytes, buffer_bytes: buffer_bytes as usize }
}

/// Makes a log whose header is durable and which the namespace knows; one in memory where the files
/// are only read, to which nothing is written.
pub(crate) fn make_log(
    files: &Arc<TieredFiles>,
    settings: &Settings,
    retired: Option<FileNumber>,
    origin: Origin,
) -> Result<Arc<LogFile>> {
    let mut log_settings = log_settings(settings);
    if files.is_read_only() {
        log_settings.segment_bytes = 0;
        return log_in(files.scratch_file(FileKind::Log)?, None, log_settings);
    }
    if origin == Origin::Recovery {
        // The logs that are replayed are still there, and no room is kept for one more: this one
        // grows when they are gone. Where nothing more fits it may not be written at all.
        log_settings.segment_bytes = log_settings.segment_bytes.min(log_settings.growth_bytes);
        match make_log_of(files, settings, retired, origin, log_settings) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => log_settings.segment_bytes = 0,
            made => return made,
        }
    }
    make_log_of(files, settings, retired, origin, log_settings)
}

fn make_log_of(
    files: &Arc<TieredFiles>,
    settings: &Settings,
    retired: Option<FileNumber>,
    origin: Origin,
    log_settings: LogSettings,
) -> Result<Arc<LogFile>> {
    let context = FileContext { kind: FileKind::Log, origin };
    let file = match retired {
        Some(number) => files.recycle(number, context)?,
        None => files.create_file(context, log_settings.segment_bytes)?,
    };
    // A write that is not to be synced needs no device: a page each time would be written for it,
    // and waited for.
    if settings.durability == Durability::Buffered {
        file.use_page_cache()?;
    }
    let number = file.number();
    let log =
        log_in(file, retired, log_settings).inspect_err(|_| delete_or_leave(files, &[number]))?;
    files.publish(&[number])?;
    Ok(log)
}

fn log_in(
    file: Arc<File>,
    retired: Option<FileNumber>,
    log_settings: LogSettings,
) -> Result<Arc<LogFile>> {
    let number = file.number();
    // The next log is made before anybody knows which record it will begin with.
    let first_sequence = Sequence::ZERO.next();
    let header = LogHeader { stream: 0, previous: retired, first_sequence };
    let writer = LogWriter::create(file, header, log_settings)?;
    Ok(Arc::new(LogFile::new(number, writer)))
}
