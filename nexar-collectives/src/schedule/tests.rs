//! Every algorithm through the checker.

use super::check::{build_all, check, same};
use super::*;

fn plan(algorithm: Algorithm, segment: usize, lookahead: usize) -> Plan {
    Plan {
        algorithm,
        segment,
        lookahead,
        ordered: false,
    }
}

fn variants(root: usize, count: usize, world: usize) -> Vec<(Operation, Algorithm)> {
    let mut operations = vec![
        Operation::Barrier,
        Operation::Broadcast { root, count },
        Operation::Reduce { root, count },
        Operation::AllReduce { count },
    ];
    let parts = [
        Parts::Even(count),
        Parts::uneven(
            &(0..world)
                .map(|i| (i * 7 + 3) % 5 * count / 2)
                .collect::<Vec<_>>(),
        )
        .unwrap(),
    ];
    for flag in [false, true] {
        operations.push(Operation::Scan {
            count,
            exclusive: flag,
        });
        operations.push(Operation::AllToAll {
            count,
            in_place: flag,
        });
        for parts in parts.clone() {
            operations.push(Operation::AllGather {
                parts: parts.clone(),
                in_place: flag,
            });
            operations.push(Operation::ReduceScatter {
                parts: parts.clone(),
                in_place: flag,
            });
            operations.push(Operation::Gather {
                root,
                parts: parts.clone(),
            });
            operations.push(Operation::Scatter { root, parts });
        }
    }
    operations
        .into_iter()
        .flat_map(|operation| {
            select::algorithms(operation.collective())
                .iter()
                .map(move |&algorithm| (operation.clone(), algorithm))
        })
        .collect()
}

#[test]
fn all() {
    for world in 1..=17 {
        for count in [0, 1, 7, world + 1] {
            for (operation, algorithm) in variants(world / 3, count, world) {
                for ordered in [false, true] {
                    let plan = Plan {
                        ordered,
                        ..plan(algorithm, 3, 2)
                    };
                    let operations = same(&operation, world);
                    let result = check(&operations, ordered, &build_all(&operations, plan));
                    assert!(result.is_ok(), "{operation:?} {world} {plan}: {result:?}");
                }
            }
        }
    }
}
