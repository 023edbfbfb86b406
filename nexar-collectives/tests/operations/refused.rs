//! What is refused before any traffic.

use super::{
    common::{MemoryCommunicator, memory_world, on_all, share},
    model::{Framed, Modelled, values},
};
use nexar_collectives::{
    Communicator, Error, ReduceOp, TimeLimits, bf16, f16, transport::Transport,
};

/// Nothing that one rank alone calls here is begun: the others would notice.
async fn alone(work: impl AsyncFn(&MemoryCommunicator)) {
    let (network, _, ranks) = memory_world(3, TimeLimits::default()).await;
    let ranks = share(ranks);
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
    let sent = network.total_stats().bytes;
    work(&ranks[1]).await;
    // Heartbeats may have been sent meanwhile; a collective would be far longer.
    assert!(network.total_stats().bytes - sent < 64);
    on_all(&ranks, |comm| async move { comm.barrier().await.unwrap() }).await;
}

async fn unsupported<T: Transport, E: Modelled>(comm: &Communicator<T>) {
    let world = comm.world_size();
    let input = values::<E>(1, 0..4 * world);
    let before = &input[..4];
    for op in ReduceOp::ALL {
        if op.supports(E::DATA_TYPE) {
            continue;
        }
        let what = format!("{op} of {}", E::DATA_TYPE);
        let mut data = Framed::new(before);
        let mut output = Framed::<E>::empty(4);
        let mut whole = Framed::new(&input);
        let results = [
            comm.all_reduce(data.slice_mut(), op).await,
            comm.all_reduce_into(before, output.slice_mut(), op).await,
            comm.all_reduce_many(&mut [data.slice_mut()], op).await,
            comm.reduce(data.slice_mut(), op, 1).await,
            comm.reduce_into(before, output.slice_mut(), op, 1).await,
            comm.reduce_scatter(&input, output.slice_mut(), op).await,
            comm.reduce_scatter_in_place(whole.slice_mut(), op).await,
            comm.reduce_scatter_v(&input, output.slice_mut(), &[4; 3], op)
                .await,
            comm.scan(data.slice_mut(), op).await,
            comm.scan_into(before, output.slice_mut(), op).await,
            comm.exclusive_scan(data.slice_mut(), op).await,
            comm.exclusive_scan_into(before, output.slice_mut(), op)
                .await,
            comm.start_all_reduce(input.clone(), op).await.map(|_| ()),
        ];
        for (at, result) in results.into_iter().enumerate() {
            let Err(Error::Unsupported(error)) = result else {
                panic!("{what}, call {at}: {result:?}");
            };
            assert_eq!((error.op, error.dtype), (op, E::DATA_TYPE));
        }
        data.expect(before, &what);
        output.expect_untouched(&what);
        whole.expect(&input, &what);
    }
    if !ReduceOp::Sum.supports(E::DATA_TYPE) {
        let mut data = Framed::new(before);
        let refused = comm.all_reduce_scaled(data.slice_mut(), E::value(0, 0));
        assert!(matches!(refused.await, Err(Error::Unsupported(_))));
        data.expect(before, "all_reduce_scaled");
    }
}

#[tokio::test]
async fn reductions_that_a_type_does_not_know() {
    alone(async |comm| {
        unsupported::<_, f32>(comm).await;
        unsupported::<_, f64>(comm).await;
        unsupported::<_, f16>(comm).await;
        unsupported::<_, bf16>(comm).await;
        unsupported::<_, bool>(comm).await;
    })
    .await;
}

#[tokio::test]
async fn roots_that_do_not_exist() {
    alone(async |comm| {
        let (input, mut output) = ([1u8; 4], [0u8; 12]);
        let sum = ReduceOp::Sum;
        for root in [3, usize::MAX] {
            let results = [
                comm.broadcast(&mut output, root).await,
                comm.reduce(&mut output, sum, root).await,
                comm.reduce_into(&input, &mut output[..4], sum, root).await,
                comm.gather(&input, &mut output, root).await,
                comm.gather_v(&input, &mut output, &[4; 3], root).await,
                comm.scatter(&[1; 12], &mut output[..4], root).await,
                comm.scatter_v(&[1; 12], &[4; 3], &mut output[..4], root)
                    .await,
            ];
            for result in results {
                let text = invalid(result);
                assert!(text.contains(&root.to_string()), "{text}");
            }
        }
        assert_eq!(output, [0; 12]);
    })
    .await;
}

#[track_caller]
fn invalid(result: Result<(), Error>) -> String {
    match result {
        Err(error @ Error::InvalidArgument { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Rank 1 of 3 with buffers of lengths that do not fit together.
#[tokio::test]
async fn lengths_that_do_not_fit() {
    alone(async |comm| {
        let (four, eleven, twelve) = ([1u8; 4], [1u8; 11], [1u8; 12]);
        let mut o = [0u8; 12];
        let sum = ReduceOp::Sum;
        let huge = [usize::MAX, 4, usize::MAX];
        let results = [
            comm.all_reduce_into(&four, &mut o[..3], sum).await,
            comm.reduce_into(&four, &mut o[..5], sum, 1).await,
            comm.scan_into(&four, &mut o[..5], sum).await,
            comm.exclusive_scan_into(&four, &mut o[..3], sum).await,
            comm.all_gather(&four, &mut o[..11]).await,
            comm.all_gather_in_place(&mut o[..11]).await,
            comm.all_gather_v(&four, &mut o, &[4; 2]).await,
            comm.all_gather_v(&four, &mut o, &[4, 3, 5]).await,
            comm.all_gather_v(&four, &mut o, &[4, 4, 5]).await,
            comm.all_gather_v(&four, &mut o, &huge).await,
            comm.gather(&four, &mut o[..11], 1).await,
            comm.gather_v(&four, &mut o, &[4; 4], 1).await,
            comm.gather_v(&four, &mut o, &[4, 5, 3], 1).await,
            comm.gather_v(&four, &mut o[..9], &[4, 4, 4], 1).await,
            comm.gather_v(&four, &mut o, &huge, 1).await,
            comm.scatter(&eleven, &mut o[..4], 1).await,
            comm.scatter_v(&twelve, &[4; 2], &mut o[..4], 1).await,
            comm.scatter_v(&twelve, &[4, 5, 3], &mut o[..4], 1).await,
            comm.scatter_v(&eleven, &[4; 3], &mut o[..4], 1).await,
            comm.reduce_scatter(&eleven, &mut o[..4], sum).await,
            comm.reduce_scatter_in_place(&mut o[..11], sum).await,
            comm.reduce_scatter_v(&twelve, &mut o[..4], &[5, 3, 4], sum)
                .await,
            comm.reduce_scatter_v(&twelve, &mut o[..4], &huge, sum)
                .await,
            comm.all_to_all(&eleven, &mut o[..11]).await,
            comm.all_to_all(&twelve, &mut o[..9]).await,
            comm.all_to_all_in_place(&mut o[..10]).await,
            comm.all_to_all_v(&twelve, &[4; 3], &mut o, &[4; 2]).await,
            comm.all_to_all_v(&twelve, &[4, 4, 3], &mut o, &[4; 3])
                .await,
            comm.all_to_all_v(&twelve, &[4; 3], &mut o, &[4, 4, 5])
                .await,
            comm.all_to_all_v(&twelve, &huge, &mut o, &huge).await,
            comm.neighbor_all_to_all(&[0, 2], &eleven, &mut o[..11])
                .await,
            comm.neighbor_all_to_all(&[0, 2], &four, &mut o).await,
            comm.neighbor_all_to_all(&[], &four, &mut o[..4]).await,
            comm.neighbor_all_to_all(&[0, 3], &four, &mut o[..4]).await,
            comm.neighbor_all_to_all_v(&[0, 2], &four, &[2], &mut o[..4], &[2; 2])
                .await,
            comm.neighbor_all_to_all_v(&[0, 2], &four, &[2; 2], &mut o[..4], &[2; 3])
                .await,
            // Blocks to the same rank that cannot be told apart.
            comm.neighbor_all_to_all_v(&[0, 0], &four, &[1, 3], &mut o[..4], &[2; 2])
                .await,
            comm.subgroup(&[0, 1, 0]).await.map(|_| ()),
            comm.subgroup(&[1, 3]).await.map(|_| ()),
        ];
        for (at, result) in results.into_iter().enumerate() {
            assert!(
                matches!(result, Err(Error::InvalidArgument { .. })),
                "call {at}: {result:?}"
            );
        }
        assert_eq!(o, [0; 12]);
    })
    .await;
}
