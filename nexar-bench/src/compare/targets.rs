//! What nexar is meant to reach, as data.

use super::{
    Entry, Results, Subject,
    plan::{COLLECTIVE_SIZES, COLLECTIVE_WORLDS, Line, Operation, SHORT, SIZES, STREAM},
};
use Bound::{AtLeast, Below, CallsPerSecond, Faster, GigabytesPerSecond};
use Operation::{
    AllGather, AllReduce, AllToAll, Barrier, Broadcast, Call, Calls, HalfRoundTrip, ReduceScatter,
    Stream,
};
use Subject::{Gloo, Nexar02, Nexar02Quic, OpenMpi};

/// What has to hold, with nexar's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// The other takes longer.
    Faster(Subject),
    /// The other takes so many times as long, or longer.
    AtLeast(Subject, f64),
    /// It takes less than so many microseconds.
    Below(f64),
    /// 10^9 bytes per second or more.
    GigabytesPerSecond(f64),
    /// Calls per second or more.
    CallsPerSecond(f64),
}

/// Bounds of some lines.
#[derive(Debug, Clone, Copy)]
struct Target {
    operation: Operation,
    ranks: &'static [usize],
    bytes: &'static [usize],
    spin: bool,
    bound: Bound,
}

const fn target(
    operation: Operation,
    ranks: &'static [usize],
    bytes: &'static [usize],
    bound: Bound,
) -> Target {
    Target {
        operation,
        ranks,
        bytes,
        spin: true,
        bound,
    }
}

const fn no_spin(operation: Operation, ranks: &'static [usize], us: f64) -> Target {
    Target {
        spin: false,
        ..target(operation, ranks, &[SHORT], Below(us))
    }
}

const fn collective(operation: Operation) -> Target {
    target(
        operation,
        &COLLECTIVE_WORLDS,
        &COLLECTIVE_SIZES,
        Faster(Gloo),
    )
}

const MIB: usize = 1 << 20;

const TARGETS: &[Target] = &[
    target(AllReduce, &[2], &[64 * MIB], AtLeast(OpenMpi, 1.4)),
    target(AllReduce, &[2], &[16 * MIB], AtLeast(OpenMpi, 1.0)),
    target(AllReduce, &[2], &[MIB], Faster(Gloo)),
    target(AllReduce, &[2], &[MIB], Below(600.0)),
    target(AllReduce, &[2], &[64 * MIB], AtLeast(Nexar02, 4.0)),
    target(AllReduce, &[2], &[64 * MIB], AtLeast(Nexar02Quic, 12.0)),
    target(AllReduce, &[4], &[64 * MIB], AtLeast(OpenMpi, 1.3)),
    target(AllReduce, &[4], &[MIB, 16 * MIB], AtLeast(OpenMpi, 1.0)),
    target(AllReduce, &[8], &[64 * MIB], AtLeast(OpenMpi, 1.0)),
    target(AllReduce, &[4, 8], &SIZES, Faster(Gloo)),
    target(AllReduce, &[4, 8], &SIZES, Faster(Nexar02)),
    target(AllReduce, &[2], &[SHORT], Below(16.0)),
    target(AllReduce, &[4], &[SHORT], Below(70.0)),
    target(AllReduce, &[8], &[SHORT], Below(280.0)),
    target(Barrier, &[2], &[0], Below(16.0)),
    target(Barrier, &[4], &[0], Below(75.0)),
    target(Barrier, &[8], &[0], Below(350.0)),
    collective(Broadcast),
    collective(AllGather),
    collective(ReduceScatter),
    collective(AllToAll),
    target(HalfRoundTrip, &[2], &[SHORT], Below(12.0)),
    target(Stream, &[2], &[STREAM], GigabytesPerSecond(2.5)),
    target(Call, &[2], &[SHORT], Below(60.0)),
    target(Calls, &[2], &[SHORT], CallsPerSecond(150_000.0)),
    no_spin(AllReduce, &[2], 60.0),
    no_spin(AllReduce, &[4], 150.0),
    no_spin(AllReduce, &[8], 450.0),
    no_spin(HalfRoundTrip, &[2], 45.0),
];

/// The bounds of a line.
pub fn bounds(line: &Line) -> impl Iterator<Item = Bound> {
    let applies = |target: &&Target| {
        target.operation == line.operation
            && target.spin == line.spin
            && target.ranks.contains(&line.ranks)
            && target.bytes.contains(&line.bytes)
    };
    TARGETS.iter().filter(applies).map(|target| target.bound)
}

/// Whether a bound holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Met,
    /// It does not.
    Missed,
    /// A figure is missing.
    Unknown,
}

/// Whether a bound holds for what was measured: medians, and medians of ratios.
pub fn verdict(bound: Bound, entry: &Entry) -> Verdict {
    let ratio = |subject| entry.ratio(subject).map(|ratio| ratio.median);
    let time = entry.time(Subject::REFERENCE);
    let holds = match bound {
        Faster(subject) => ratio(subject).map(|ratio| ratio > 1.0),
        AtLeast(subject, times) => ratio(subject).map(|ratio| ratio >= times),
        Below(us) => time.map(|time| time < us),
        GigabytesPerSecond(rate) => {
            time.map(|time| gigabytes_per_second(&entry.line, time) >= rate)
        }
        CallsPerSecond(rate) => time.map(|time| 1e6 / time >= rate),
    };
    match holds {
        Some(true) => Verdict::Met,
        Some(false) => Verdict::Missed,
        None => Verdict::Unknown,
    }
}

/// The size by the time.
pub(super) fn gigabytes_per_second(line: &Line, us: f64) -> f64 {
    line.bytes as f64 / us / 1e3
}

/// How many bounds of all lines of the plan are met, missed and unknown.
pub fn count(results: &Results) -> [usize; 3] {
    let mut counts = [0; 3];
    for line in super::plan::lines() {
        let entry = results.entry(&line);
        for bound in bounds(&line) {
            match entry.map_or(Verdict::Unknown, |entry| verdict(bound, entry)) {
                Verdict::Met => counts[0] += 1,
                Verdict::Missed => counts[1] += 1,
                Verdict::Unknown => counts[2] += 1,
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::{
        super::{fixture, plan},
        *,
    };
    use Subject::Quinn;

    #[test]
    fn every_target_is_about_lines_that_are_measured() {
        let lines = plan::lines();
        for target in TARGETS {
            for ranks in target.ranks {
                for bytes in target.bytes {
                    let mut line = Line::new(target.operation, *ranks, *bytes);
                    line.spin = target.spin;
                    assert!(lines.contains(&line), "{line}");
                    if let Faster(subject) | AtLeast(subject, _) = target.bound {
                        assert!(subject.measures(&line) && subject.peer().is_some());
                    }
                    assert!(bounds(&line).any(|bound| bound == target.bound));
                }
            }
        }
    }

    #[test]
    fn bounds_are_met_or_missed() {
        let line = Line::new(AllReduce, 2, 64 * MIB);
        let times = [(Quinn, 40.0), (OpenMpi, 56.0), (Nexar02, 159.0)];
        let entry = fixture::entry(line, &times);
        let verdicts: Vec<_> = bounds(&line).map(|bound| verdict(bound, &entry)).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed, Verdict::Unknown]);
        let cases = [
            (Faster(OpenMpi), Verdict::Met),
            (AtLeast(OpenMpi, 1.5), Verdict::Missed),
            (Below(40.0), Verdict::Missed),
            (Below(40.1), Verdict::Met),
            (CallsPerSecond(25_000.0), Verdict::Met),
            (GigabytesPerSecond(1e4), Verdict::Missed),
        ];
        for (bound, expected) in cases {
            assert_eq!(verdict(bound, &entry), expected, "{bound:?}");
        }
    }

    #[test]
    fn a_stream_has_a_rate() {
        let line = Line::new(Stream, 2, MIB);
        assert!((gigabytes_per_second(&line, 1048.576) - 1.0).abs() < 1e-12);
        let entry = |us| fixture::entry(line, &[(Quinn, us)]);
        let bound = bounds(&line).next().unwrap();
        assert_eq!(verdict(bound, &entry(400.0)), Verdict::Met);
        assert_eq!(verdict(bound, &entry(430.0)), Verdict::Missed);
    }

    #[test]
    fn all_bounds_are_counted() {
        let all: usize = plan::lines().iter().map(|line| bounds(line).count()).sum();
        assert_eq!(count(&Results::default()), [0, 0, all]);
        let [met, missed, unknown] = count(&fixture::everything());
        assert_eq!((met + missed, unknown), (all, 0));
        assert!(met > 0 && missed > 0);
    }
}
