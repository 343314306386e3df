//! Files that are written to, in memory and on the file system.

use std::io::ErrorKind;
use std::path::Path;

use redrive::io::{FileSystem, MemoryStorage, Storage};

const FOLDER: &str = "/log/data-0";

fn memory() -> MemoryStorage {
    let memory = MemoryStorage::new();
    memory.create_directory(FOLDER);
    memory
}

#[test]
fn shared_bytes_are_not_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = memory();
    let disk = FileSystem;
    for (storage, directory) in [(&memory as &dyn Storage, Path::new(FOLDER)), (&disk, folder.path())] {
        let file = storage.create_file(&directory.join("file")).expect("created");
        assert_eq!(
            storage.create_file(&directory.join("file")).expect_err("there").kind(),
            ErrorKind::AlreadyExists
        );
        file.reserve(1 << 30);
        file.set_len(1 << 20).expect("lengthened");
        assert_eq!(file.written(), 0);
        assert_eq!(file.region(0..1).expect_err("not written").kind(), ErrorKind::InvalidInput);
        file.write_at(0, &[1; 100]).expect("written");
        file.set_len(50).expect("nothing is shared yet");
        assert_eq!((file.written(), file.size().expect("a size")), (50, 50));
        file.write_at(50, &[2; 5000]).expect("written");
        let region = file.region(40..5050).expect("a region");
        assert_eq!(file.set_len(5049).expect_err("shared").kind(), ErrorKind::InvalidInput);
        file.set_len(6000).expect("lengthened");
        file.set_len(5050).expect("as far as it is written");
        assert_eq!(file.region(5000..5051).expect_err("not written").kind(), ErrorKind::InvalidInput);
        storage.rename(&directory.join("file"), &directory.join("other")).expect("renamed");
        file.write_at(5050, &[3; 10]).expect("written under its new name");
        storage.remove_file(&directory.join("other")).expect("removed");
        file.write_at(5060, &[4; 10]).expect("written without a name");
        assert_eq!(
            *file.region(5045..5070).expect("a region"),
            [vec![2; 5], vec![3; 10], vec![4; 10]].concat()
        );
        drop(file);
        assert_eq!(*region, [vec![1; 10], vec![2; 5000]].concat());
    }
}

#[test]
fn a_file_grows_beyond_what_was_reserved() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = FileSystem.create_file(&folder.path().join("file")).expect("created");
    file.reserve(1);
    let (mut regions, mut end) = (Vec::new(), 0);
    for piece in 0..40u8 {
        let len = 10_000 + usize::from(piece) * 1000;
        file.write_at(end, &vec![piece; len]).expect("written");
        regions.push((piece, file.region(end..end + len as u64).expect("a region")));
        end += len as u64;
    }
    assert!(end > 16 * (64 << 10), "longer than several doublings");
    regions.push((0, file.region(0..10_000).expect("a region")));
    for (piece, region) in regions {
        assert!(region.iter().all(|byte| *byte == piece));
    }
}

#[test]
fn a_lock_keeps_others_out_until_it_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = memory();
    let disk = FileSystem;
    for (storage, directory) in [(&memory as &dyn Storage, Path::new(FOLDER)), (&disk, folder.path())] {
        let path = directory.join(".lock");
        assert!(!storage.is_locked(&path).expect("a look"));
        let lock = storage.lock_file(&path).expect("a lock");
        assert!(storage.is_locked(&path).expect("a look"));
        assert_eq!(storage.lock_file(&path).expect_err("held").kind(), ErrorKind::WouldBlock);
        // Another descriptor that is closed does not take the lock away.
        drop(storage.open(&path).expect("opened"));
        assert!(storage.is_locked(&path).expect("a look"));
        drop(lock);
        assert!(!storage.is_locked(&path).expect("a look"));
        drop(storage.lock_file(&path).expect("a lock again"));
    }
}

#[test]
fn a_small_file_is_replaced_in_one_step() {
    let storage = memory();
    let path = Path::new(FOLDER).join("checkpoint");
    redrive::io::replace_file(&storage, &path, b"old").expect("written");
    let steps = storage.operations().len();
    for step in 0..=steps {
        storage.refuse_from(storage.operations().len() + step, ErrorKind::Other);
        let result = redrive::io::replace_file(&storage, &path, b"new");
        storage.refuse_from(usize::MAX, ErrorKind::Other);
        let content = storage.content(&path).expect("a file");
        assert!(content == b"old" || content == b"new");
        assert!(result.is_err() || content == b"new");
        assert_eq!(result.is_ok(), step == steps, "step {step}");
        if step < steps {
            redrive::io::replace_file(&storage, &path, b"old").expect("written");
        }
    }
}
