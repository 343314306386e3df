//! Cutting a log.

use std::path::Path;
use std::sync::Arc;

use super::partition::{Log, Writer, check_offset, jitter, segment_config};
use super::rebuild::{Extent, rebuild_producers};
use super::state_files::{list_snapshots, remove_snapshot};
use crate::error::Error;
use crate::segment::{SegmentFileState, SegmentWriter};
use crate::types::Offset;

impl Log {
    /// Removes every record at or above an offset, and every batch that holds one of them; says whether something was
    /// removed. The log then ends at `offset`. Everything is on the device when this returns; the recovery point of the
    /// root's checkpoint file may be above it until that is written.
    ///
    /// What readers hold of the log stays valid.
    ///
    /// # Errors
    /// [`Error::NegativeOffset`]; [`Error::Io`]
    pub fn truncate_to(&self, offset: Offset, now_ms: i64) -> Result<bool, Error> {
        check_offset(offset)?;
        self.change(|writer| {
            let log_end = self.log_end_offset();
            if offset >= log_end {
                if writer.epochs.truncate_from_end(log_end) {
                    writer.write_epochs(&*self.storage)?;
                }
                return Ok(false);
            }
            let view = self.view.load_full();
            let Some(last) =
                view.segments.partition_point(|segment| segment.base_offset() <= offset).checked_sub(1)
            else {
                self.restart_at(writer, offset, offset, now_ms)?;
                return Ok(true);
            };
            let mut segments = view.segments[..=last].to_vec();
            let gone = &view.segments[last + 1..];
            if !gone.is_empty() {
                // Readers no longer find what is about to go.
                self.publish(writer, segments.clone());
                // A crash before the last segment is cut must leave no gap: from the end.
                let gone: Vec<_> = gone.iter().rev().cloned().collect();
                writer.active = None;
                writer.delete_segments(&*self.storage, &gone, now_ms)?;
                let directory = &writer.directory;
                self.storage
                    .sync_directory(directory)
                    .map_err(Error::io("bring to the device", directory))?;
                let config = segment_config(&writer.config, jitter(writer.config.segment_jitter_ms));
                writer.active = Some(SegmentWriter::resume(Arc::clone(&segments[last]), config, now_ms)?);
            }
            writer.truncations += 1;
            self.lower_recovery_point(offset)?;
            drop(segments.pop());
            writer.active().truncate_to(offset, now_ms)?;
            segments.push(Arc::clone(writer.active().segment()));
            self.set_log_end_offset(offset);
            self.publish(writer, segments);

            if writer.epochs.truncate_from_end(offset) {
                writer.write_epochs(&*self.storage)?;
            }
            let log_start = self.log_start_offset().min(offset);
            self.set_log_start_offset(log_start);
            let view = self.view.load_full();
            let extent = Extent { log_start, end: offset, snapshot_max: offset };
            rebuild_producers(&*self.storage, writer, &view.segments, extent, now_ms)?;
            if self.high_watermark() > offset {
                self.store_high_watermark(writer, offset);
            }
            Ok(true)
        })
    }

    /// Removes everything; the log then begins and ends at `offset`, or begins at `log_start` where that is given.
    ///
    /// # Errors
    /// [`Error::NegativeOffset`]; [`Error::Io`]
    pub fn truncate_fully_and_start_at(
        &self,
        offset: Offset,
        log_start: Option<Offset>,
        now_ms: i64,
    ) -> Result<(), Error> {
        let log_start = log_start.unwrap_or(offset);
        check_offset(offset)?;
        check_offset(log_start)?;
        self.change(|writer| self.restart_at(writer, offset, log_start, now_ms))
    }

    pub(super) fn restart_at(
        &self,
        writer: &mut Writer,
        offset: Offset,
        log_start: Offset,
        now_ms: i64,
    ) -> Result<(), Error> {
        let view = self.view.load_full();
        writer.truncations += 1;
        self.lower_recovery_point(offset)?;
        writer.active = None;
        let config = segment_config(&writer.config, jitter(writer.config.segment_jitter_ms));
        let create = |directory: &Path| {
            let active =
                SegmentWriter::create(Arc::clone(&self.storage), directory, offset, config.clone(), now_ms)?;
            self.storage.sync_directory(directory).map_err(Error::io("bring to the device", directory))?;
            Ok::<_, Error>(active)
        };
        // First, so that after a crash the log does not begin at 0. Another one of its name has to make room.
        let is_taken = view.segments.iter().any(|segment| segment.base_offset() == offset);
        let early = if is_taken { None } else { Some(create(&writer.directory)?) };
        let gone: Vec<_> = view.segments.iter().rev().cloned().collect();
        writer.delete_segments(&*self.storage, &gone, now_ms)?;
        writer.producers.truncate_fully_and_start_at(offset);
        for snapshot in list_snapshots(&*self.storage, &writer.directory)? {
            remove_snapshot(&*self.storage, &writer.directory, snapshot)?;
        }
        writer.newest_snapshot = None;
        if writer.epochs.clear() {
            writer.write_epochs(&*self.storage)?;
        }
        let active = match early {
            Some(active) => active,
            None => create(&writer.directory)?,
        };
        let directory = &writer.directory;
        self.storage.sync_directory(directory).map_err(Error::io("bring to the device", directory))?;
        // A segment of the same name as a deleted one that waits for its removal has files of its own.
        debug_assert!(gone.iter().all(|segment| segment.state() == SegmentFileState::Deleted));
        let segments = vec![Arc::clone(active.segment())];
        writer.active = Some(active);
        self.set_log_end_offset(offset);
        self.set_log_start_offset(log_start);
        self.publish(writer, segments);
        self.store_high_watermark(writer, offset);
        Ok(())
    }
}
