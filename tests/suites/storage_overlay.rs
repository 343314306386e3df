//! A storage that keeps its changes in memory, against the storages that it stands for: the file system and the one in
//! memory, on random steps. What lies below must stay as it is.

#![deny(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use redrive::io::{
    EntryKind, FileSystem, MemoryStorage, Overlay, Region, Storage, WritableFile, read_full_at,
};
use redrive_tests::logs::Rng;

const NAMES: [&str; 9] = ["a", "b", "d", "e", "d/a", "d/b", "d/f", "e/a", "d/f/a"];

/// The files that a storage begins with.
fn beginning() -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |len: usize, seed: usize| (0..len).map(|at| (at * 7 + seed) as u8).collect();
    vec![("a", bytes(100, 1)), ("d/a", bytes(5000, 2)), ("d/b", Vec::new()), ("d/f/a", bytes(300, 3))]
}

/// A storage and the place in it.
struct Place {
    storage: Arc<dyn Storage>,
    root: PathBuf,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn is_directory(&self, name: &str) -> bool {
        self.storage.list(&self.path(name)).is_ok()
    }

    fn exists(&self, name: &str) -> bool {
        self.storage.resolve(&self.path(name)).is_ok()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self.storage.open(&self.path(name))?;
        let mut bytes = vec![0; file.size()? as usize];
        let read = read_full_at(&*file, 0, &mut bytes)?;
        assert_eq!(read, bytes.len());
        assert_eq!(*file.map()?, *bytes, "a map is the same");
        Ok(bytes)
    }

    fn list(&self, name: &str) -> io::Result<BTreeMap<String, EntryKind>> {
        let entries = self.storage.list(&self.path(name))?;
        let named: BTreeMap<_, _> =
            entries.iter().map(|entry| (entry.name.to_string_lossy().into_owned(), entry.kind)).collect();
        assert_eq!(named.len(), entries.len(), "a name twice");
        Ok(named)
    }

    /// Every file and folder below a folder, files with their bytes.
    fn tree(&self, name: &str, found: &mut BTreeMap<String, Option<Vec<u8>>>) {
        for (child, kind) in self.list(name).expect("a folder") {
            let child = if name.is_empty() { child } else { format!("{name}/{child}") };
            if kind == EntryKind::Directory {
                found.insert(child.clone(), None);
                self.tree(&child, found);
            } else {
                let bytes = self.read(&child).expect("a file");
                assert_eq!(kind, EntryKind::File { len: bytes.len() as u64 });
                found.insert(child, Some(bytes));
            }
        }
    }
}

/// Both must do it or both must not, and say the same where a caller may ask for the reason.
#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: io::Result<T>,
    expected: io::Result<T>,
) -> Option<T> {
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(found, expected, "{what}");
            Some(found)
        }
        (Err(found), Err(expected)) => {
            let told = [ErrorKind::AlreadyExists, ErrorKind::NotFound, ErrorKind::ResourceBusy];
            if told.contains(&expected.kind()) {
                assert_eq!(found.kind(), expected.kind(), "{what}");
            }
            None
        }
        (found, expected) => panic!("{what}: {found:?} instead of {expected:?}"),
    }
}

/// What a twin cannot do as a file system does it.
#[derive(Clone, Copy, PartialEq)]
enum Twin {
    FileSystem,
    /// A file of which a region was given out stays as long as it is, whoever has it open.
    Memory {
        shares: bool,
    },
}

struct Handles {
    name: String,
    ours: Arc<dyn WritableFile>,
    theirs: Arc<dyn WritableFile>,
}

/// Takes random steps in both; how many of them were done.
fn walk(seed: u64, steps: usize, ours: &Place, theirs: &Place, twin: Twin) -> BTreeMap<&'static str, usize> {
    let mut rng = Rng::new(seed);
    let mut done = BTreeMap::new();
    let mut open: Vec<Handles> = Vec::new();
    // Regions stay what they were, whatever becomes of their files.
    let mut regions: Vec<(Region, Vec<u8>)> = Vec::new();
    for _ in 0..steps {
        let name = NAMES[rng.below(NAMES.len() as u64) as usize];
        let other = NAMES[rng.below(NAMES.len() as u64) as usize];
        let (our_path, their_path) = (ours.path(name), theirs.path(name));
        let mut count = |what: &'static str, did: bool| *done.entry(what).or_insert(0) += usize::from(did);
        match rng.below(20) {
            kind @ (0 | 1) => {
                let both = match kind {
                    0 => (ours.storage.create_file(&our_path), theirs.storage.create_file(&their_path)),
                    _ => (ours.storage.open_writable(&our_path), theirs.storage.open_writable(&their_path)),
                };
                if let (Ok(ours), Ok(theirs)) = &both {
                    let name = name.to_owned();
                    open.push(Handles { name, ours: Arc::clone(ours), theirs: Arc::clone(theirs) });
                }
                if kind == 1 && theirs.is_directory(name) {
                    assert!(both.0.is_err() && both.1.is_err());
                    continue;
                }
                let is_open = same(name, both.0.map(drop), both.1.map(drop)).is_some();
                count(if kind == 0 { "create_file" } else { "open_writable" }, is_open);
            }
            2 => {
                let (found, expected) =
                    (ours.storage.create_dir(&our_path), theirs.storage.create_dir(&their_path));
                count("create_dir", same(name, found, expected).is_some());
            }
            3 => {
                let (found, expected) =
                    (ours.storage.remove_file(&our_path), theirs.storage.remove_file(&their_path));
                // Which error a folder gives is left open.
                match theirs.is_directory(name) {
                    true => assert!(found.is_err() && expected.is_err()),
                    false => count("remove_file", same(name, found, expected).is_some()),
                }
            }
            4 if theirs.is_directory(name) => {
                let (found, expected) =
                    (ours.storage.remove_dir(&our_path), theirs.storage.remove_dir(&their_path));
                count("remove_dir", same(name, found, expected).is_some());
            }
            5 | 6 => {
                let is_odd = theirs.is_directory(other)
                    || theirs.is_directory(name) && (theirs.exists(other) || other.starts_with(name));
                if twin != Twin::FileSystem && is_odd {
                    continue;
                }
                let (found, expected) = (
                    ours.storage.rename(&our_path, &ours.path(other)),
                    theirs.storage.rename(&their_path, &theirs.path(other)),
                );
                let what = format!("{name} to {other}");
                count("rename", same(&what, found, expected).is_some());
            }
            7 => {
                let (found, expected) =
                    (ours.storage.sync_directory(&our_path), theirs.storage.sync_directory(&their_path));
                // A file system takes a file as well.
                if !theirs.exists(name) || theirs.is_directory(name) {
                    count("sync_directory", same(name, found, expected).is_some());
                }
            }
            8 => count("list", same(name, ours.list(name), theirs.list(name)).is_some()),
            9 if !theirs.is_directory(name) => {
                count("read", same(name, ours.read(name), theirs.read(name)).is_some());
            }
            10 if !open.is_empty() => {
                let at = rng.below(open.len() as u64) as usize;
                drop(open.swap_remove(at));
            }
            _ if !open.is_empty() => {
                let at = rng.below(open.len() as u64) as usize;
                step_file(&mut rng, &mut open[at], twin, &mut regions, &mut count);
            }
            _ => {}
        }
    }
    for (region, bytes) in &regions {
        assert_eq!(**region, **bytes);
    }
    for handles in &open {
        let read = |file: &dyn WritableFile| {
            let mut bytes = vec![0; file.size().expect("a size") as usize];
            read_full_at(file, 0, &mut bytes).expect("read");
            bytes
        };
        assert_eq!(read(&*handles.ours), read(&*handles.theirs), "{}", handles.name);
    }
    let tree = |place: &Place| {
        let mut found = BTreeMap::new();
        place.tree("", &mut found);
        found
    };
    assert_eq!(tree(ours), tree(theirs));
    done
}

fn step_file(
    rng: &mut Rng,
    handles: &mut Handles,
    twin: Twin,
    regions: &mut Vec<(Region, Vec<u8>)>,
    count: &mut impl FnMut(&'static str, bool),
) {
    let Handles { name, ours, theirs } = handles;
    let size = theirs.size().expect("a size");
    assert_eq!(ours.size().expect("a size"), size, "{name}");
    assert_eq!(ours.written(), theirs.written(), "{name}");
    match rng.below(7) {
        0 | 1 => {
            let position = if rng.once_in(2) { size } else { rng.below(size + 50) };
            let bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
            // Of nothing that is written behind the end they make something else.
            if !bytes.is_empty() {
                let both = (ours.write_at(position, &bytes), theirs.write_at(position, &bytes));
                count("write_at", same(name, both.0, both.1).is_some());
            }
        }
        2 => {
            let len = match twin {
                Twin::Memory { shares: true } => size + rng.below(3000),
                _ => rng.below(size + 3000),
            };
            let both = (ours.set_len(len), theirs.set_len(len));
            count("set_len", same(name, both.0, both.1).is_some());
        }
        3 => {
            let (position, len) = (rng.below(size + 10), rng.below(700) as usize);
            let read = |file: &dyn WritableFile| {
                let mut buffer = vec![0; len];
                let read = read_full_at(file, position, &mut buffer)?;
                buffer.truncate(read);
                Ok(buffer)
            };
            count("read_at", same(name, read(&**ours), read(&**theirs)).is_some());
        }
        4 if twin == Twin::FileSystem => {
            let len = rng.below(size + 10);
            let (Some(ours), Some(theirs)) = (Arc::get_mut(ours), Arc::get_mut(theirs)) else { return };
            if rng.once_in(3) && size > 0 && theirs.written() > 0 {
                let held = (ours.region(0..1), theirs.region(0..1));
                if held.0.is_ok() && held.1.is_ok() {
                    let both = (ours.shorten(len), theirs.shorten(len));
                    count("shorten refused", same(name, both.0, both.1).is_none());
                }
                return;
            }
            // Made longer by this, a file is not told to have been.
            if len <= theirs.written() {
                let both = (ours.shorten(len), theirs.shorten(len));
                // Regions of ours are held on to; of theirs none.
                match both.0 {
                    Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                        assert!(len == ours.written() || ours.set_len(len).is_err(), "shared");
                        regions.clear();
                        ours.shorten(len).expect("nobody has a region now");
                        both.1.expect("nobody has a region");
                    }
                    found => count("shorten", same(name, found, both.1).is_some()),
                }
            }
        }
        _ if twin != (Twin::Memory { shares: false }) => {
            let end = theirs.written().min(size);
            let from = rng.below(end + 1);
            let range = from..from + rng.below(end - from + 1);
            // Of no bytes they make something else.
            if !range.is_empty() {
                let found = ours.region(range.clone());
                if let Ok(region) = &found {
                    regions.push((region.clone(), region.to_vec()));
                }
                let expected = theirs.region(range).map(|region| region.to_vec());
                count("region", same(name, found.map(|region| region.to_vec()), expected).is_some());
            }
            let beyond = theirs.written() + 1;
            assert!(ours.region(0..beyond).is_err() && theirs.region(0..beyond).is_err());
        }
        _ => {}
    }
}

const STEPS: [&str; 14] = [
    "create_file",
    "open_writable",
    "create_dir",
    "remove_file",
    "remove_dir",
    "rename",
    "sync_directory",
    "list",
    "read",
    "write_at",
    "set_len",
    "read_at",
    "region",
    "shorten",
];

fn assert_all_seen(done: &BTreeMap<&'static str, usize>, but: &[&str]) {
    for step in STEPS.iter().filter(|step| !but.contains(step)) {
        assert!(done.get(step).is_some_and(|&times| times > 20), "{step} was hardly seen: {done:?}");
    }
}

fn add(sum: &mut BTreeMap<&'static str, usize>, done: BTreeMap<&'static str, usize>) {
    for (step, times) in done {
        *sum.entry(step).or_insert(0) += times;
    }
}

#[test]
fn as_the_storage_in_memory() {
    let filled = || {
        let memory = MemoryStorage::new();
        memory.create_directory("/logs/d/f");
        memory.create_directory("/logs/e");
        for (name, bytes) in beginning() {
            memory.write(Path::new("/logs").join(name), bytes);
        }
        memory
    };
    let mut sum = BTreeMap::new();
    for seed in 0..400 {
        let (base, theirs) = (filled(), filled());
        let root = PathBuf::from("/logs");
        let ours = Place { storage: Arc::new(Overlay::new(Arc::new(base.clone()))), root: root.clone() };
        let theirs = Place { storage: Arc::new(theirs), root: root.clone() };
        let twin = Twin::Memory { shares: seed % 2 == 0 };
        add(&mut sum, walk(seed, 150, &ours, &theirs, twin));
        assert_eq!(base.operations(), []);
        let mut found = BTreeMap::new();
        Place { storage: Arc::new(base), root }.tree("", &mut found);
        found.retain(|_, bytes| bytes.is_some());
        let before = beginning().into_iter().map(|(name, bytes)| (name.to_owned(), Some(bytes)));
        assert_eq!(found, before.collect());
    }
    assert_all_seen(&sum, &["shorten"]);
}

/// Names, bytes and times below a folder.
fn snapshot(folder: &Path) -> BTreeSet<(PathBuf, Option<Vec<u8>>, SystemTime)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        let modified = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
        if path.is_dir() {
            found.extend(snapshot(&path));
            found.insert((path, None, modified));
        } else {
            found.insert((path.clone(), Some(fs::read(&path).expect("a readable file")), modified));
        }
    }
    found
}

#[test]
fn as_the_file_system() {
    let mut sum = BTreeMap::new();
    for seed in 0..120 {
        let filled = || {
            let folder = tempfile::tempdir().expect("a folder");
            for directory in ["d/f", "e"] {
                fs::create_dir_all(folder.path().join(directory)).expect("made");
            }
            for (name, bytes) in beginning() {
                fs::write(folder.path().join(name), bytes).expect("written");
            }
            folder
        };
        let (below, beside) = (filled(), filled());
        let before = snapshot(below.path());
        let place = |storage: Arc<dyn Storage>, folder: &Path| Place {
            storage,
            root: folder.canonicalize().expect("a folder"),
        };
        let ours = place(Arc::new(Overlay::new(Arc::new(FileSystem))), below.path());
        let theirs = place(Arc::new(FileSystem), beside.path());
        add(&mut sum, walk(seed, 200, &ours, &theirs, Twin::FileSystem));
        assert!(snapshot(below.path()) == before, "seed {seed}");
    }
    assert_all_seen(&sum, &[]);
    assert!(sum["shorten refused"] > 20, "{sum:?}");
}

/// A cut costs no memory, nor do zeros at the end, nor a rename; a write into what is kept does.
#[test]
fn what_is_held() {
    let memory = MemoryStorage::new();
    memory.write("/log/file", vec![1; 1 << 20]);
    memory.write("/log/index", vec![0; 10 << 20]);
    let overlay = Overlay::new(Arc::new(memory));
    let log = overlay.open_writable(Path::new("/log/file")).expect("open");
    let region = log.region(0..1000).expect("a region");
    assert_eq!(log.set_len(500_000).expect_err("shared").kind(), ErrorKind::InvalidInput);
    drop(log);
    let log = overlay.open_writable(Path::new("/log/file")).expect("open");
    log.set_len(500_000).expect("cut");
    let index = overlay.open_writable(Path::new("/log/index")).expect("open");
    index.set_len(0).expect("emptied");
    index.set_len(20 << 20).expect("lengthened");
    overlay.rename(Path::new("/log/file"), Path::new("/log/other")).expect("renamed");
    overlay.rename(Path::new("/log"), Path::new("/moved")).expect("renamed");
    assert_eq!(overlay.held_bytes(), 0);
    index.write_at(0, &[2; 80]).expect("written");
    assert!((80..1000).contains(&overlay.held_bytes()), "{}", overlay.held_bytes());
    log.write_at(500_000, &[3; 1000]).expect("written");
    assert!((1080..4000).contains(&overlay.held_bytes()), "{}", overlay.held_bytes());
    log.write_at(10, &[4]).expect("written");
    assert!(overlay.held_bytes() >= 501_000, "{}", overlay.held_bytes());
    log.set_len(5).expect("cut");
    assert!(overlay.held_bytes() < 1000, "{}", overlay.held_bytes());
    assert_eq!(*region, [1; 1000]);
    let names: Vec<_> = overlay.list(Path::new("/moved")).expect("a folder");
    assert_eq!(names.len(), 2);
    assert_eq!(overlay.list(Path::new("/log")).expect_err("gone").kind(), ErrorKind::NotFound);
}

/// A lock below keeps us out, and one of ours keeps out nobody below.
#[test]
fn locks() {
    let memory = MemoryStorage::new();
    memory.create_directory("/log");
    let overlay = Overlay::new(Arc::new(memory.clone()));
    let path = Path::new("/log/.lock");
    let lock = overlay.lock_file(path).expect("free");
    assert!(overlay.is_locked(path).expect("a look"));
    assert_eq!(overlay.clone().lock_file(path).expect_err("held").kind(), ErrorKind::WouldBlock);
    assert!(!memory.is_locked(path).expect("a look") && memory.content(path).is_none());
    drop(lock);
    drop(overlay.lock_file(path).expect("free again"));

    memory.write(path, Vec::new());
    let overlay = Overlay::new(Arc::new(memory.clone()));
    let held = memory.lock_file(path).expect("free");
    assert_eq!(overlay.lock_file(path).expect_err("held below").kind(), ErrorKind::WouldBlock);
    drop(held);
    drop(overlay.lock_file(path).expect("free"));
    assert_eq!(memory.operations(), []);
}

/// What is not a regular file is read as it is below, and not written to.
#[test]
fn links() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a folder");
    fs::write(root.join("file"), "content").expect("written");
    std::os::unix::fs::symlink("file", root.join("link")).expect("a link");
    let overlay = Overlay::new(Arc::new(FileSystem));
    let kind = |name: &str| {
        let entries = overlay.list(&root).expect("a folder");
        entries.into_iter().find(|entry| entry.name == *name).map(|entry| entry.kind)
    };
    let read = |name: &str| {
        let mut bytes = [0; 20];
        let file = overlay.open(&root.join(name)).expect("open");
        let read = read_full_at(&*file, 0, &mut bytes).expect("read");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    assert_eq!(read("link"), "content");
    assert_eq!(
        overlay.open_writable(&root.join("link")).expect_err("a link").kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(kind("link"), Some(EntryKind::Link));
    overlay.rename(&root.join("link"), &root.join("other")).expect("renamed");
    assert_eq!((kind("link"), kind("other")), (None, Some(EntryKind::Link)));
    assert_eq!(read("other"), "content");
    assert_eq!(overlay.resolve(&root.join("other")).expect("there"), root.join("file"));
    overlay.rename(&root.join("file"), &root.join("other")).expect("renamed");
    assert_eq!((kind("file"), kind("other")), (None, Some(EntryKind::File { len: 7 })));
    assert!(root.join("link").is_symlink() && root.join("file").is_file());
}

/// A name without a folder is one of the working folder, here that of the package.
#[test]
fn relative_paths() {
    let overlay = Overlay::new(Arc::new(FileSystem));
    let (file, folder) = (Path::new("Cargo.toml"), Path::new("suites"));
    let size = fs::metadata(file).expect("there").len();
    assert_eq!(overlay.open(file).and_then(|file| file.size()).expect("open"), size);
    assert!(overlay.list(folder).expect("a folder").len() > 10);
    assert_eq!(overlay.create_dir(folder).expect_err("there").kind(), ErrorKind::AlreadyExists);
    overlay.rename(file, Path::new("other")).expect("renamed");
    assert_eq!(overlay.open(file).expect_err("gone").kind(), ErrorKind::NotFound);
    assert!(file.exists() && !Path::new("other").exists());
}
