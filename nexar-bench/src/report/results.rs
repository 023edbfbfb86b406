//! Reading what criterion has written.

use super::{ReportError, plan::Group};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// One result: the time of one iteration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// What was measured.
    pub group: Group,
    /// With what.
    pub subject: String,
    /// In which case: the size, say.
    pub case: String,
    /// The amount of one iteration.
    pub amount: Amount,
    /// Its median time.
    pub time: Time,
    /// When the result was written.
    pub written: SystemTime,
}

/// What an iteration moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many messages.
    Messages(u64),
    /// Nothing that is counted.
    None,
}

/// A median and its confidence interval, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Measurement {
    /// Bytes or messages in a second at the given time of an iteration.
    pub(super) fn rate(&self, time: f64) -> f64 {
        let amount = match self.amount {
            Amount::Bytes(amount) | Amount::Messages(amount) => amount,
            Amount::None => 1,
        };
        amount as f64 / time
    }
}

#[derive(Deserialize)]
struct Benchmark {
    function_id: Option<String>,
    value_str: Option<String>,
    #[serde(default)]
    throughput: Value,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

/// Nanoseconds.
#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// The results of the bench `transports` in criterion's directory, in the order of the report. Those of
/// other benches are passed over.
///
/// # Errors
///
/// [`ReportError::NoResults`] if there are none; [`ReportError::Read`] or [`ReportError::Parse`] for a file that
/// cannot be used.
pub fn read(directory: &Path) -> Result<Vec<Measurement>, ReportError> {
    let mut found = Vec::new();
    for group in Group::ALL {
        for subject in directories(&directory.join(group.id()))? {
            for case in directories(&subject)? {
                found.extend(measurement(group, &case.join("new"))?);
            }
        }
    }
    if found.is_empty() {
        return Err(ReportError::NoResults {
            directory: directory.to_owned(),
        });
    }
    sort(&mut found);
    Ok(found)
}

/// In the order of the plan; what it does not know comes last.
fn sort(measurements: &mut [Measurement]) {
    let place = |list: Vec<String>, name: &String| {
        let known = list.iter().position(|known| known == name);
        known.unwrap_or(list.len())
    };
    measurements.sort_by_cached_key(|m| {
        (
            Group::ALL.iter().position(|&group| group == m.group),
            place(m.group.cases(), &m.case),
            place(m.group.subjects(), &m.subject),
            m.subject.clone(),
        )
    });
}

/// The directories in a directory; none if it does not exist.
fn directories(parent: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let error = |source| ReportError::Read {
        path: parent.to_owned(),
        source,
    };
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(error(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(error)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    Ok(found)
}

/// The result in a directory, if there is one.
fn measurement(group: Group, directory: &Path) -> Result<Option<Measurement>, ReportError> {
    let path = directory.join("benchmark.json");
    if !path.exists() {
        return Ok(None);
    }
    let benchmark: Benchmark = parse(&path)?;
    let (Some(subject), Some(case)) = (benchmark.function_id, benchmark.value_str) else {
        return Ok(None);
    };
    let path = directory.join("estimates.json");
    let median = parse::<Estimates>(&path)?.median;
    let written = fs::metadata(&path).and_then(|data| data.modified());
    Ok(Some(Measurement {
        group,
        subject,
        case,
        amount: amount(&benchmark.throughput),
        time: Time {
            median: median.point_estimate / 1e9,
            low: median.confidence_interval.lower_bound / 1e9,
            high: median.confidence_interval.upper_bound / 1e9,
        },
        written: written.map_err(|source| ReportError::Read { path, source })?,
    }))
}

/// criterion writes `{"Bytes":8}`, `{"Elements":8}`, null, or another unit.
fn amount(throughput: &Value) -> Amount {
    let of = |unit: &str| throughput.get(unit).and_then(Value::as_u64);
    match (of("Bytes"), of("Elements")) {
        (Some(bytes), _) => Amount::Bytes(bytes),
        (None, Some(messages)) => Amount::Messages(messages),
        (None, None) => Amount::None,
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, ReportError> {
    let text = fs::read_to_string(path).map_err(|source| ReportError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|source| ReportError::Parse {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};

    #[test]
    fn results_are_read_in_the_order_of_the_report() {
        let dir = fixture::directory("order");
        fixture::write(&dir, "stream_one_way", "TCP", "64 MiB", 64 << 20, 0.02);
        fixture::write(
            &dir,
            "stream_one_way",
            "nexar quinn",
            "64 MiB",
            64 << 20,
            0.025,
        );
        fixture::write(&dir, "stream_one_way", "TCP", "1 MiB", 1 << 20, 0.0005);
        fixture::write(&dir, "f32 sum", "plain", "4096", 4096, 0.001);
        let found = read(&dir).unwrap();
        let names: Vec<_> = found.iter().map(|m| (&*m.case, &*m.subject)).collect();
        assert_eq!(
            names,
            [
                ("1 MiB", "TCP"),
                ("64 MiB", "nexar quinn"),
                ("64 MiB", "TCP")
            ]
        );
        assert_eq!(found[2].amount, Amount::Bytes(64 << 20));
        let Time { median, low, high } = found[2].time;
        for (found, expected) in [(median, 0.02), (low, 0.018), (high, 0.022)] {
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_directory_without_results_says_how_to_make_them() {
        let dir = fixture::directory("empty");
        for dir in [&dir, &dir.join("missing")] {
            let error = read(dir).unwrap_err();
            assert!(matches!(error, ReportError::NoResults { .. }));
            assert!(
                error
                    .to_string()
                    .contains("cargo bench -p nexar-bench --bench transports")
            );
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_broken_file_is_named() {
        let dir = fixture::directory("broken");
        fixture::write(&dir, "round_trip", "TCP", "8 B", 8, 6e-5);
        let path = dir.join("round_trip/TCP/8 B/new/estimates.json");
        fs::write(&path, "{").unwrap();
        let error = read(&dir).unwrap_err();
        assert!(error.to_string().contains("estimates.json"), "{error}");
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&dir).unwrap_err(), ReportError::Read { .. }));
        fs::remove_dir_all(dir).unwrap();
    }
}
