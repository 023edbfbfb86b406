//! The results, and the file that keeps them.

use super::{
    CompareError, Peer, Subject,
    plan::{Line, lines},
    stats::{Ratio, median},
};
use crate::{files::FileError, report::Machine};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What has been measured of a line, all in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// What was measured.
    pub line: Line,
    /// Where, and with which build.
    pub machine: Machine,
    /// When, in seconds since 1970.
    pub measured: u64,
    /// Microseconds of one operation, one for each turn; `None` where it failed.
    pub us: BTreeMap<Subject, Vec<Option<f64>>>,
}

impl Entry {
    /// An entry without figures.
    pub fn new(line: Line, machine: Machine) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Entry {
            line,
            machine,
            measured: now.unwrap_or_default().as_secs(),
            us: BTreeMap::new(),
        }
    }

    /// The median of a subject's times in microseconds; `None` if it was not measured or always failed.
    pub fn time(&self, subject: Subject) -> Option<f64> {
        let times = self.us.get(&subject)?;
        median(&times.iter().copied().flatten().collect::<Vec<_>>())
    }

    /// How many times as long a subject takes as nexar with its defaults.
    pub fn ratio(&self, subject: Subject) -> Option<Ratio> {
        Ratio::of(self.us.get(&subject)?, self.us.get(&Subject::REFERENCE)?)
    }

    /// When it was measured.
    pub fn time_measured(&self) -> SystemTime {
        let since = Duration::from_secs(self.measured);
        UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
    }
}

/// Whether a library is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// It is, in this version.
    Installed(String),
    /// It is not, for this reason.
    Missing(String),
}

/// All results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Results {
    /// The libraries that were looked for.
    pub peers: BTreeMap<Peer, PeerState>,
    /// What has been measured, in the order of the plan.
    pub entries: Vec<Entry>,
}

impl Results {
    /// The results in a file; none if it does not exist.
    ///
    /// # Errors
    ///
    /// [`CompareError::File`] or [`CompareError::Parse`].
    pub fn read(path: &Path) -> Result<Self, CompareError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Results::default()),
            Err(error) => return Err(FileError::of("read", path)(error).into()),
        };
        serde_json::from_str(&text).map_err(|source| CompareError::Parse {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes them to a file, whose directory is made if there is none.
    ///
    /// # Errors
    ///
    /// [`CompareError::File`] or [`CompareError::Parse`].
    pub fn write(&self, path: &Path) -> Result<(), CompareError> {
        let text = serde_json::to_string_pretty(self).map_err(|source| CompareError::Parse {
            path: path.to_owned(),
            source,
        })?;
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(FileError::of("write", path))?;
        }
        fs::write(path, text + "\n").map_err(FileError::of("write", path))?;
        Ok(())
    }

    /// The entry of a line.
    pub fn entry(&self, line: &Line) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.line == *line)
    }

    /// Replaces the entry of the same line.
    pub fn put(&mut self, entry: Entry) {
        self.entries.retain(|old| old.line != entry.line);
        self.entries.push(entry);
        let plan = lines();
        self.entries
            .sort_by_key(|entry| plan.iter().position(|line| *line == entry.line));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};
    use crate::compare::plan::Operation;

    #[test]
    fn a_file_keeps_everything() {
        let path = fixture::directory("keeps").join("sub/results.json");
        assert_eq!(Results::read(&path).unwrap(), Results::default());
        let results = fixture::everything();
        results.write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap(), results);
        fs::write(&path, "[]").unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains("measure again"), "{error}");
    }

    #[test]
    fn a_line_is_measured_anew() {
        let mut results = fixture::everything();
        let before = results.entries.len();
        let line = Line::new(Operation::Barrier, 4, 0);
        let mut entry = Entry::new(line, fixture::machine());
        entry.us.insert(Subject::Quinn, vec![Some(1.0), None]);
        results.put(entry.clone());
        assert_eq!(results.entries.len(), before);
        assert_eq!(results.entry(&line), Some(&entry));
        assert_eq!(entry.time(Subject::Quinn), Some(1.0));
        assert_eq!(entry.time(Subject::Gloo), None);
        assert_eq!(entry.ratio(Subject::Gloo), None);
        let order: Vec<_> = results.entries.iter().map(|entry| entry.line).collect();
        assert_eq!(order, lines());
    }
}
