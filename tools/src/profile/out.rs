//! The folder that a profile is written into.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::histograms;
use super::report::Report;
use crate::failure::Failure;
use crate::json::write_line;

const PROFILE: &str = "profile.json";
const HISTOGRAMS: &str = "load.hlog";
/// Marks the root of a broker's log directory, whose start fails over a folder that is no partition.
const META_PROPERTIES: &str = "meta.properties";

/// A folder that can be written into; one that was made for it goes away again if nothing comes.
#[derive(Debug)]
pub(super) struct Out {
    /// As it was given, for people.
    shown: PathBuf,
    folder: PathBuf,
    is_new: bool,
}

impl Out {
    /// Looks at the folder, and makes it if it is not there.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a folder that is a log directory or lies in one, links followed; [`Failure::Output`] for
    /// one that holds one of the files already, is none, or cannot be made.
    pub(super) fn prepare(dir: &Path, inputs: &[PathBuf]) -> Result<Self, Failure> {
        let folder = resolve(dir).map_err(failed(dir))?;
        // An input that is not there is refused by the load.
        let inputs: Vec<PathBuf> = inputs.iter().filter_map(|input| fs::canonicalize(input).ok()).collect();
        for above in folder.ancestors() {
            if inputs.iter().any(|input| input == above) || above.join(META_PROPERTIES).exists() {
                return Err(Failure::Usage(format!(
                    "--out {} lies in the log directory {}, in which nothing is changed",
                    dir.display(),
                    above.display()
                )));
            }
        }
        for name in [PROFILE, HISTOGRAMS] {
            let path = folder.join(name);
            // A link counts, wherever it leads.
            if fs::symlink_metadata(&path).is_ok() {
                return Err(failed(&dir.join(name))(io::ErrorKind::AlreadyExists.into()));
            }
        }
        let is_new = match fs::create_dir(&folder) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => false,
            Err(e) => return Err(failed(dir)(e)),
        };
        Ok(Self { shown: dir.to_path_buf(), folder, is_new })
    }

    /// Writes both files and says where they are. What is not whole is removed.
    ///
    /// # Errors
    /// [`Failure::Output`], also for a file that has come up meanwhile.
    pub(super) fn write(mut self, report: &Report) -> Result<Vec<PathBuf>, Failure> {
        self.file(PROFILE, |out| write_line(out, report))?;
        if let Err(failure) = self.file(HISTOGRAMS, |out| histograms::write(out, &report.runs)) {
            let _ = fs::remove_file(self.folder.join(PROFILE));
            return Err(failure);
        }
        self.is_new = false;
        Ok([PROFILE, HISTOGRAMS].map(|name| self.shown.join(name)).into())
    }

    fn file(&self, name: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let path = self.folder.join(name);
        let failed = failed(&self.shown.join(name));
        let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(e) => return Err(failed(e)),
        };
        let fill = |file: File| -> io::Result<()> {
            let mut out = BufWriter::new(file);
            fill(&mut out)?;
            out.flush()
        };
        fill(file).map_err(|e| {
            // There is no better place to say that it could not be removed than the error that led here.
            let _ = fs::remove_file(&path);
            failed(e)
        })
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if self.is_new {
            // Removes it only while it is empty.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure + use<> {
    let to = path.display().to_string();
    move |source| Failure::Output { to: to.clone(), source }
}

/// The folder with all links followed; it may be missing itself, but not its parent.
fn resolve(dir: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(dir) {
        // A link that leads nowhere is there, too.
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(dir).is_err() => {
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            let name = dir.file_name().ok_or(e)?;
            Ok(fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
        }
        found => found,
    }
}
