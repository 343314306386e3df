//! How much memory this process may have.

use std::fs;
use std::path::{Path, PathBuf};

/// What a process needs beside its maps: an eighth, and at least so many bytes.
const RESERVE_MIN: u64 = 128 << 20;

/// Bytes that the maps of a load may take if the process is not to be killed for it: the limit of its control group,
/// or of one around it, less a reserve of an eighth, at least 128 MiB. `None` where there is no limit, or none that can
/// be read.
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_limit(&groups, Path::new("/sys/fs/cgroup"))
        .map(|limit| limit - (limit / 8).max(RESERVE_MIN).min(limit))
}

/// The smallest limit of the groups that a process is in, as `/proc/self/cgroup` lists them.
fn group_limit(groups: &str, mount: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // Version 2 has one hierarchy without a name; version 1 one for memory.
        let (root, file) = if controllers.is_empty() {
            (mount.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            return None;
        };
        let group = root.join(path.trim_start_matches('/'));
        group
            .ancestors()
            .take_while(|group| group.starts_with(&root))
            .filter_map(|group| limit(group.join(file)))
            .min()
    });
    limits.min()
}

fn limit(file: PathBuf) -> Option<u64> {
    // "max" in version 2; in version 1 a number that no machine has.
    fs::read_to_string(file).ok()?.trim().parse().ok().filter(|limit| *limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no file system here")]
    fn the_smallest_limit_around_counts() {
        let mount = std::env::temp_dir().join(format!("redrive-memory-{}", std::process::id()));
        for folder in ["a/b/c", "memory/x"] {
            fs::create_dir_all(mount.join(folder)).unwrap();
        }
        let write = |file: &str, text: &str| fs::write(mount.join(file), text).unwrap();
        write("a/memory.max", "5000\n");
        write("a/b/memory.max", "max\n");
        write("a/b/c/memory.max", "7000\n");
        write("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_limit("0::/a/b/c\n", &mount), Some(5000));
        assert_eq!(group_limit("0::/\n", &mount), None);
        assert_eq!(group_limit("3:cpu:/a\n4:memory:/x\n", &mount), None);
        write("memory/memory.limit_in_bytes", "800\n");
        assert_eq!(group_limit("3:cpu:/a\n4:memory,x:/x\n0::/a\n", &mount), Some(800));
        assert_eq!(group_limit("nonsense\n", &mount), None);
        fs::remove_dir_all(&mount).unwrap();
    }
}
