//! The files of one partition as a broker leaves them after a clean stop: log, offset index, time index (LogSegment),
//! each segment rolled by size.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use redrive::producer_state::ProducerSnapshot;
use redrive::segment::index::{OffsetIndexEntry, TimeIndexEntry};
use redrive::types::Offset;

use super::error::GenerateError;

/// Kafka's default of `index.interval.bytes`.
const INDEX_INTERVAL_BYTES: u64 = 4096;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
const NO_TIMESTAMP: i64 = -1;

/// Where the files of a partition go.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    /// Behind each name: empty, or `.cleaned`, which a broker takes for worthless.
    pub(super) suffix: &'static str,
    /// User and group that the files must belong to, where they are not this process's.
    pub(super) owner: Option<(u32, u32)>,
    /// Leader epoch of the batches.
    pub(super) leader_epoch: i32,
}

impl Place {
    /// Path of one of the files of a segment; `kind` is `log`, `index` or `timeindex`.
    pub(super) fn path(&self, base_offset: i64, kind: &str) -> PathBuf {
        self.folder.join(format!("{base_offset:020}.{kind}{}", self.suffix))
    }

    /// A new file, in the place of any that is there.
    fn create(&self, path: &Path) -> Result<File, GenerateError> {
        let file = File::create(path).map_err(GenerateError::io("create", path))?;
        if let Some((user, group)) = self.owner {
            chown(path, Some(user), Some(group)).map_err(GenerateError::io("give away", path))?;
        }
        Ok(file)
    }

    /// Writes a small file whole, on disk when this returns.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> Result<(), GenerateError> {
        let mut file = self.create(path)?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(GenerateError::io("write", path))
    }
}

/// Kinds of files that each segment has.
pub(super) const KINDS: [&str; 3] = ["log", "index", "timeindex"];

/// Writes batches, and the index entries that a broker would write for them.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    /// `None`: nothing is written, only counted.
    place: Option<Place>,
    segment_bytes: u64,
    bases: Vec<i64>,
    log: Option<File>,
    /// Not written yet.
    buffer: Vec<u8>,
    /// Size of the segment, `buffer` included.
    position: u64,
    /// Bytes since the last index entry.
    since_entry: u64,
    /// Largest timestamp of the segment, and the last offset of the first batch that has it.
    largest: (i64, i64),
    last_time_entry: i64,
    offset_index: Vec<u8>,
    time_index: Vec<u8>,
}

impl SegmentWriter {
    /// Begins with a segment at offset 0.
    ///
    /// # Errors
    /// [`GenerateError::Io`].
    pub(super) fn new(place: Option<Place>, segment_bytes: u32) -> Result<Self, GenerateError> {
        let mut writer = Self {
            place,
            segment_bytes: u64::from(segment_bytes),
            bases: Vec::new(),
            log: None,
            buffer: Vec::with_capacity(WRITE_BYTES + (64 << 10)),
            position: 0,
            since_entry: 0,
            largest: (NO_TIMESTAMP, 0),
            last_time_entry: NO_TIMESTAMP,
            offset_index: Vec::new(),
            time_index: Vec::new(),
        };
        writer.begin(0)?;
        Ok(writer)
    }

    fn begin(&mut self, base: i64) -> Result<(), GenerateError> {
        self.bases.push(base);
        (self.position, self.since_entry) = (0, 0);
        (self.largest, self.last_time_entry) = ((NO_TIMESTAMP, base), NO_TIMESTAMP);
        if let Some(place) = &self.place {
            self.log = Some(place.create(&place.path(base, "log"))?);
        }
        Ok(())
    }

    fn base(&self) -> i64 {
        self.bases.last().copied().unwrap_or_default()
    }

    /// Appends a batch; rolls before it where the segment would become too large, or the offset too far from its
    /// base.
    ///
    /// # Errors
    /// [`GenerateError::Io`].
    pub(super) fn append(
        &mut self,
        batch: &[u8],
        first_offset: i64,
        last_offset: i64,
        max_timestamp: i64,
    ) -> Result<(), GenerateError> {
        let bytes = batch.len() as u64;
        let is_far = last_offset - self.base() > i64::from(i32::MAX);
        if self.position > 0 && (self.position + bytes > self.segment_bytes || is_far) {
            self.end()?;
            self.begin(first_offset)?;
        }
        if max_timestamp > self.largest.0 {
            self.largest = (max_timestamp, last_offset);
        }
        if self.since_entry > INDEX_INTERVAL_BYTES {
            let position = i32::try_from(self.position).expect("segments are smaller than 2 GiB");
            let entry = OffsetIndexEntry { offset: Offset(last_offset), position };
            entry.encode(Offset(self.base()), &mut self.offset_index).expect("not far from the base");
            self.push_time_entry();
            self.since_entry = 0;
        }
        self.since_entry += bytes;
        self.position += bytes;
        self.buffer.extend_from_slice(batch);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn push_time_entry(&mut self) {
        let (timestamp, offset) = self.largest;
        if timestamp > self.last_time_entry {
            let entry = TimeIndexEntry { timestamp, offset: Offset(offset) };
            entry.encode(Offset(self.base()), &mut self.time_index).expect("not far from the base");
            self.last_time_entry = timestamp;
        }
    }

    fn flush(&mut self) -> Result<(), GenerateError> {
        if let (Some(place), Some(log)) = (&self.place, &mut self.log) {
            let path = || place.path(self.bases.last().copied().unwrap_or_default(), "log");
            log.write_all(&self.buffer).map_err(|e| GenerateError::io("write", path())(e))?;
        }
        self.buffer.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), GenerateError> {
        self.flush()?;
        self.push_time_entry();
        let base = self.base();
        if let Some(place) = &self.place {
            for (kind, index) in [("index", &self.offset_index), ("timeindex", &self.time_index)] {
                let path = place.path(base, kind);
                place.create(&path)?.write_all(index).map_err(GenerateError::io("write", path))?;
            }
        }
        self.log = None;
        self.offset_index.clear();
        self.time_index.clear();
        Ok(())
    }

    /// Ends the last segment, and returns when all files are on disk. Gives the base offsets of the segments.
    ///
    /// # Errors
    /// [`GenerateError::Io`].
    pub(super) fn finish(mut self) -> Result<Vec<i64>, GenerateError> {
        self.end()?;
        if let Some(place) = &self.place {
            let files = self.bases.iter().flat_map(|&base| KINDS.map(|kind| place.path(base, kind)));
            sync_files(&place.folder, files.collect())?;
        }
        Ok(self.bases)
    }

    /// Segments so far.
    pub(super) fn segments(&self) -> u64 {
        self.bases.len() as u64
    }
}

/// Writes the snapshots of a partition without producers: at each roll, and at the end of the log.
///
/// # Errors
/// [`GenerateError::Io`].
pub(super) fn write_snapshots(place: &Place, bases: &[i64], end_offset: i64) -> Result<(), GenerateError> {
    let empty = ProducerSnapshot { entries: Vec::new() }.encode().expect("no entries are not too many");
    let offsets = bases.iter().copied().chain([end_offset]).filter(|&offset| offset > 0);
    let files: Vec<PathBuf> =
        offsets.map(|offset| place.folder.join(format!("{offset:020}.snapshot"))).collect();
    for path in &files {
        place.create(path)?.write_all(&empty).map_err(GenerateError::io("write", path))?;
    }
    sync_files(&place.folder, files)
}

/// Most files that are brought to the device one by one: each may cost a turn of its journal.
const SYNCED_ALONE_MAX: usize = 16;

/// Returns when the content of these files of a folder is on its device.
fn sync_files(folder: &Path, files: Vec<PathBuf>) -> Result<(), GenerateError> {
    if files.len() > SYNCED_ALONE_MAX {
        let synced = File::open(folder).and_then(|folder| Ok(nix::unistd::syncfs(folder)?));
        return synced.map_err(GenerateError::io("sync", folder));
    }
    files.into_iter().try_for_each(|path| {
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(GenerateError::io("sync", path))
    })
}

/// Makes what was created, renamed or removed in a folder last.
///
/// # Errors
/// [`GenerateError::Io`].
pub(super) fn sync_folder(folder: &Path) -> Result<(), GenerateError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(GenerateError::io("sync", folder))
}

/// Replaces a small file: on disk under the old name or the new content, never half.
///
/// # Errors
/// [`GenerateError::Io`].
pub(super) fn replace_file(place: &Place, name: &str, content: &[u8]) -> Result<(), GenerateError> {
    let temporary = place.folder.join(format!("{name}.tmp"));
    let path = place.folder.join(name);
    place.write(&temporary, content)?;
    fs::rename(&temporary, &path).map_err(GenerateError::io("replace", path))
}
