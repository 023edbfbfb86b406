//! Two processes with one stream or messenger between them.

use crate::{
    or_exit,
    subject::{AnySubject, Session},
    subjects,
    work::Work,
};
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, measurement};
use nexar_bench::report::plan::{self, Group, MESSAGE, MESSAGES, ROUND_TRIP, TRANSFERS};

type Benches<'a> = BenchmarkGroup<'a, measurement::WallTime>;

/// A case of a group: its name in the results, what an iteration moves, and how.
struct Case {
    name: String,
    amount: Throughput,
    work: Work,
}

impl Case {
    fn bytes(bytes: usize, work: Work) -> Self {
        Case {
            name: plan::size(bytes),
            amount: Throughput::Bytes(bytes as u64),
            work,
        }
    }
}

pub(crate) fn measure(c: &mut Criterion) {
    let subjects = subjects::all();
    let all: Vec<_> = subjects.iter().map(|subject| &**subject).collect();
    let for_transfers = all.iter().copied().filter(|s| s.takes_transfers());
    let for_transfers: Vec<_> = for_transfers.collect();
    let messages = Case {
        name: plan::size(MESSAGE),
        amount: Throughput::Elements(MESSAGES as u64),
        work: Work::Messages,
    };
    let one_way = TRANSFERS.map(|bytes| Case::bytes(bytes, Work::OneWay(bytes)));
    let both_ways = TRANSFERS.map(|bytes| Case::bytes(bytes, Work::BothWays(bytes)));

    group(
        c,
        Group::RoundTrip,
        &all,
        &[Case::bytes(ROUND_TRIP, Work::RoundTrip)],
    );
    group(c, Group::MessageRate, &all, &[messages]);
    group(c, Group::OneWay, &for_transfers, &one_way);
    group(c, Group::BothWays, &for_transfers, &both_ways);
}

/// Measures a group with one subject after the other, each with two processes of its own.
fn group(c: &mut Criterion, group: Group, subjects: &[&dyn AnySubject], cases: &[Case]) {
    let mut benches = c.benchmark_group(group.id());
    benches.sampling_mode(SamplingMode::Flat);
    for subject in subjects {
        // Opened by the first case that is not filtered out.
        let mut session = None;
        for case in cases {
            measure_case(&mut benches, *subject, &mut session, case);
        }
        if let Some(session) = session {
            or_exit(&subject.name(), session.close());
        }
    }
    benches.finish();
}

fn measure_case(
    benches: &mut Benches<'_>,
    subject: &dyn AnySubject,
    session: &mut Option<Box<dyn Session>>,
    case: &Case,
) {
    let name = subject.name();
    benches.throughput(case.amount.clone());
    benches.bench_function(BenchmarkId::new(&name, &case.name), |b| {
        b.iter_custom(|repeats| {
            let open = session.get_or_insert_with(|| or_exit(&name, subject.open()));
            or_exit(&name, open.measure(case.work, repeats))
        });
    });
}
