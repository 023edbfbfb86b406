//! Text files that the tools read and write.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}", path = path.display())]
#[non_exhaustive]
pub struct FileError {
    /// What was tried.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl FileError {
    /// What makes an error of what the system says.
    pub fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| FileError {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

/// What is in a file.
///
/// # Errors
///
/// [`FileError`] with what the system says.
pub fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(FileError::of("read", path))
}

/// Replaces what is in a file, and prints its name.
///
/// # Errors
///
/// [`FileError`] with what the system says.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    fs::write(path, text).map_err(FileError::of("write", path))?;
    println!("{}", path.display());
    Ok(())
}
