//! Reductions over the ranks up to each.

use super::model::{Framed, Modelled, reduced, same, values};
use nexar_collectives::{Communicator, Error, ReduceOp, transport::Transport};

/// Scans in their forms; an average is refused.
pub(crate) async fn scans<T: Transport, E: Modelled>(
    comm: &Communicator<T>,
    count: usize,
    op: ReduceOp,
) {
    let (world, rank) = (comm.world_size(), comm.rank());
    let what = format!(
        "scan {op} of {count} x {} on {rank} of {world}",
        E::DATA_TYPE
    );
    let input = values::<E>(rank, 0..count);
    let mut data = Framed::new(&input);
    if op == ReduceOp::Average {
        for refused in [
            comm.scan(data.slice_mut(), op).await,
            comm.exclusive_scan(data.slice_mut(), op).await,
        ] {
            assert!(
                matches!(refused, Err(Error::InvalidArgument { .. })),
                "{what}: {refused:?}"
            );
        }
        data.expect(&input, &what);
        let mut output = Framed::empty(count);
        for refused in [
            comm.scan_into(&input, output.slice_mut(), op).await,
            comm.exclusive_scan_into(&input, output.slice_mut(), op)
                .await,
        ] {
            assert!(
                matches!(refused, Err(Error::InvalidArgument { .. })),
                "{what}: {refused:?}"
            );
        }
        return output.expect_untouched(&what);
    }
    let expected = reduced(op, 0..rank + 1, 0..count);
    comm.scan(data.slice_mut(), op).await.unwrap();
    data.expect(&expected, &what);
    let mut output = Framed::empty(count);
    comm.scan_into(&input, output.slice_mut(), op)
        .await
        .unwrap();
    output.expect(&expected, &format!("{what}, into"));

    let mut data = Framed::new(&input);
    comm.exclusive_scan(data.slice_mut(), op).await.unwrap();
    let mut output = Framed::empty(count);
    comm.exclusive_scan_into(&input, output.slice_mut(), op)
        .await
        .unwrap();
    let what = format!("exclusive {what}");
    if rank == 0 {
        data.expect(&input, &what);
        output.expect_untouched(&format!("{what}, into"));
    } else {
        let expected = reduced(op, 0..rank, 0..count);
        data.expect(&expected, &what);
        output.expect(&expected, &format!("{what}, into"));
    }
    same(
        &input,
        &values::<E>(rank, 0..count),
        &format!("input of {what}"),
    );
}
