//! Methods by name.

use super::{job::Job, runtime::Runtime};
use crate::{Error, Result, transport::Transport, wire::rpc::MAX_NAME};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Names that are given as similar to one that does not exist.
const MAX_SIMILAR: usize = 3;

/// What can be called.
pub(super) trait Method<T: Transport>: Send + Sync {
    /// Whether the reply is streamed.
    fn streams(&self) -> bool;

    /// Begins to handle a call, elsewhere: this returns at once.
    fn start(self: Arc<Self>, job: Job<T>, runtime: &Runtime);
}

type Methods<T> = HashMap<Box<[u8]>, Arc<dyn Method<T>>>;

pub(super) struct Registry<T: Transport>(RwLock<Methods<T>>);

impl<T: Transport> Registry<T> {
    pub(super) fn new() -> Self {
        Registry(RwLock::default())
    }

    pub(super) fn add(&self, name: &str, method: Arc<dyn Method<T>>) -> Result<()> {
        check_name("register", name)?;
        let mut methods = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if methods.contains_key(name.as_bytes()) {
            return Err(invalid(
                "register",
                format!("method '{name}' exists already"),
            ));
        }
        methods.insert(name.as_bytes().into(), method);
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) -> bool {
        let mut methods = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let removed = methods.remove(name.as_bytes());
        drop(methods);
        removed.is_some()
    }

    /// Drops all methods.
    pub(super) fn clear(&self) {
        let mut methods = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut *methods);
        drop(methods);
        drop(all);
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<Arc<dyn Method<T>>> {
        let methods = self.0.read().unwrap_or_else(PoisonError::into_inner);
        methods.get(name).cloned()
    }

    /// Names spelt like one that does not exist, a line each.
    pub(super) fn similar(&self, name: &[u8]) -> String {
        let methods = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let near = |known: &[u8]| {
            let distance = distance(known, name);
            (distance <= 1 + name.len() / 3).then_some(distance)
        };
        let mut similar: Vec<(usize, &[u8])> = methods
            .keys()
            .filter_map(|known| Some((near(known)?, &**known)))
            .collect();
        similar.sort_unstable();
        similar.truncate(MAX_SIMILAR);
        let names = similar
            .iter()
            .map(|(_, name)| String::from_utf8_lossy(name));
        names.collect::<Vec<_>>().join("\n")
    }
}

pub(super) fn check_name(operation: &'static str, name: &str) -> Result<()> {
    let length = name.len();
    if (1..=MAX_NAME).contains(&length) {
        return Ok(());
    }
    let reason = format!("the name of a method has 1 to {MAX_NAME} bytes, not {length}");
    Err(invalid(operation, reason))
}

pub(super) fn invalid(operation: &'static str, reason: String) -> Error {
    Error::InvalidArgument { operation, reason }
}

/// Insertions, removals and replacements of bytes that turn one name into the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("sum", "sum", 0),
            ("sum", "sums", 1),
            ("kitten", "sitting", 3),
        ];
        for (a, b, expected) in cases {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
            assert_eq!(distance(b.as_bytes(), a.as_bytes()), expected, "{b} {a}");
        }
    }
}
