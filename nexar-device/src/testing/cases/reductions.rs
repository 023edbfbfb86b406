//! Reductions on the device.

use super::{IN_PLACE, Outcome};
use crate::{
    adapter::{DeviceError, ExecutionQueue},
    reduce,
    testing::{
        Harness,
        tools::{Case, check, filled, pattern},
    },
};
use nexar_core::{DataType, Element, ReduceOp};

pub async fn reductions_on_the_device<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    let values: Vec<i32> = (0..4).map(|at| at * 1000 - 1500).collect();
    let others: Vec<i32> = (0..4).map(|at| 700 - at * 300).collect();
    let memory = case.memory(i32::as_bytes(&values)).await;
    let mut queue = case.queue(memory.region());
    let slot = filled(&mut queue, 0, i32::as_bytes(&others)).await;
    let reduced = queue.reduce(slot, 4, 4..12, DataType::I32, ReduceOp::Sum);
    if !case.has(|capabilities| capabilities.reduce) {
        assert!(
            matches!(reduced, Err(DeviceError::Unsupported { .. })),
            "a reduction without the capability"
        );
        drop(queue);
        case.check_slots().await;
        return Outcome::Skipped("it has no reduction");
    }
    // In the order of copies to the device.
    let again = filled(&mut queue, 0, i32::as_bytes(&[-1])).await;
    drop(queue.copy_in(again, 0, 4..8));
    reduced.expect("reduce").await.expect("reduce");
    let error = filled(&mut queue, 0, i32::as_bytes(&others)).await;
    let error = queue.reduce(error, 0, 12..20, DataType::I32, ReduceOp::Sum);
    let error = error.expect("it is an error of the transfer").await;
    assert!(error.is_err(), "elements beyond the region");
    drop(queue);
    let expected = [values[0], -1, values[2] + others[2], values[3]];
    check(
        &case.get_after(&memory).await,
        i32::as_bytes(&expected),
        || "the region".into(),
    );
    case.check_slots().await;
    Outcome::Done
}

pub async fn reductions_are_those_of_the_host<H: Harness>(case: Case<H>) -> Outcome {
    if !case.staged {
        return Outcome::Skipped(IN_PLACE.0);
    }
    if !case.has(|capabilities| capabilities.reduce) {
        return Outcome::Skipped("it has no reduction");
    }
    let len = case.slot_len().min(256);
    for dtype in [DataType::I32, DataType::I64, DataType::U8, DataType::U32] {
        for op in [
            ReduceOp::Sum,
            ReduceOp::Min,
            ReduceOp::Max,
            ReduceOp::Product,
        ] {
            let (mut expected, other) = (pattern(1, len), pattern(2, len));
            let memory = case.memory(&expected).await;
            let mut queue = case.queue(memory.region());
            let slot = filled(&mut queue, 0, &other).await;
            let reduced = queue.reduce(slot, 0, 0..len, dtype, op);
            drop(reduced.expect("reduce").await.expect("reduce"));
            drop(queue);
            reduce::reduce(dtype, op, &mut expected, &other).expect("reduce here");
            check(&case.get(&memory).await, &expected, || {
                format!("{op} of {dtype}")
            });
        }
    }
    Outcome::Done
}
