//! Results as criterion writes them, for tests.

use super::{Amount, Machine, Measurement, Time, plan::Group};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    time::{Duration, SystemTime},
};

/// A directory of this test's own.
pub(super) fn directory(test: &str) -> PathBuf {
    let dir = env::temp_dir().join(format!("nexar-report-{}-{test}", process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A result of `seconds`, with an interval of 10 % on either side.
pub(super) fn write(dir: &Path, group: &str, subject: &str, case: &str, bytes: u64, seconds: f64) {
    let dir = dir.join(group).join(subject).join(case).join("new");
    fs::create_dir_all(&dir).unwrap();
    let benchmark = format!(
        r#"{{"group_id":"{group}","function_id":"{subject}","value_str":"{case}","throughput":{{"Bytes":{bytes}}},"full_id":"{group}/{subject}/{case}","directory_name":"{group}/{subject}/{case}","title":"{group}/{subject}/{case}"}}"#
    );
    fs::write(dir.join("benchmark.json"), benchmark).unwrap();
    let estimate = |ns: f64| {
        format!(
            r#"{{"confidence_interval":{{"confidence_level":0.95,"lower_bound":{},"upper_bound":{}}},"point_estimate":{ns},"standard_error":1.0}}"#,
            ns * 0.9,
            ns * 1.1
        )
    };
    let estimates = format!(
        r#"{{"mean":{},"median":{},"median_abs_dev":{},"slope":null,"std_dev":{}}}"#,
        estimate(1.0),
        estimate(seconds * 1e9),
        estimate(1.0),
        estimate(1.0)
    );
    fs::write(dir.join("estimates.json"), estimates).unwrap();
}

/// One result without a file.
pub(super) fn measurement(
    group: Group,
    subject: &str,
    case: &str,
    amount: Amount,
    seconds: f64,
) -> Measurement {
    Measurement {
        group,
        subject: subject.into(),
        case: case.into(),
        amount,
        time: Time {
            median: seconds,
            low: seconds * 0.8,
            high: seconds * 1.25,
        },
        written: SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_000_000),
    }
}

/// Everything that the plan has, each slower than the one before.
pub(super) fn everything() -> Vec<Measurement> {
    let mut all = Vec::new();
    for group in Group::ALL {
        for case in group.cases() {
            for (i, subject) in group.subjects().iter().enumerate() {
                let amount = match group {
                    Group::MessageRate => Amount::Messages(10_000),
                    Group::Formation => Amount::None,
                    _ => Amount::Bytes(1 << 20),
                };
                all.push(measurement(
                    group,
                    subject,
                    &case,
                    amount,
                    1e-3 * (i + 1) as f64,
                ));
            }
        }
    }
    all
}

/// A machine that does not exist.
pub(super) fn machine() -> Machine {
    Machine {
        cpu: "Example CPU".into(),
        cores: 2,
        kernel: "Linux 6.18".into(),
        rustc: "rustc 1.95.0".into(),
        commit: "0123abc".into(),
    }
}
