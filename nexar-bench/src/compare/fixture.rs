//! Results, for tests.

use super::{
    Entry, Peer, PeerState, Results, Subject,
    plan::{Line, lines},
};
use crate::report::Machine;
use std::{env, fs, path::PathBuf, process};

/// A directory of this test's own.
pub(super) fn directory(test: &str) -> PathBuf {
    let dir = env::temp_dir().join(format!("nexar-compare-{}-{test}", process::id()));
    // What another run has left.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A machine that does not exist.
pub(super) fn machine() -> Machine {
    let json = r#"{"cpu":"Example CPU","cores":2,"kernel":"Linux 6.18","rustc":"rustc 1.95.0","commit":"0123abc"}"#;
    serde_json::from_str(json).unwrap()
}

/// A line with one time for each subject.
pub(super) fn entry(line: Line, times: &[(Subject, f64)]) -> Entry {
    let mut entry = Entry::new(line, machine());
    entry.measured = 1_796_000_000;
    for &(subject, us) in times {
        entry.us.insert(subject, vec![Some(us)]);
    }
    entry
}

/// Everything; each library takes longer than the one before.
pub(super) fn everything() -> Results {
    let mut results = Results::default();
    for peer in Peer::ALL {
        let state = PeerState::Installed(format!("{} 1.0", peer.name()));
        results.peers.insert(peer, state);
    }
    for line in lines() {
        let times: Vec<_> = Subject::ALL
            .into_iter()
            .filter(|subject| subject.measures(&line))
            .enumerate()
            .map(|(i, subject)| (subject, (1 + i) as f64 * (1.0 + line.bytes as f64 / 1e3)))
            .collect();
        results.put(entry(line, &times));
    }
    results
}
