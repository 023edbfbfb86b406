//! A world of one: what goes in comes out.

use super::{
    common::memory_world,
    model::{same, values},
};
use nexar_collectives::{ReduceOp, TimeLimits};

#[tokio::test(start_paused = true)]
async fn output_is_input_at_every_length() {
    let (_network, _, mut ranks) = memory_world(1, TimeLimits::default()).await;
    let comm = ranks.remove(0);
    for count in 0..=1025 {
        let input = values::<f32>(0, 0..count);
        let what = |name: &str| format!("{name} of {count}");
        let mut output = vec![9.0; count];
        for op in [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Max] {
            comm.all_reduce_into(&input, &mut output, op).await.unwrap();
            same(&output, &input, &what("all_reduce_into"));
            output.fill(9.0);
            comm.reduce_into(&input, &mut output, op, 0).await.unwrap();
            same(&output, &input, &what("reduce_into"));
            output.fill(9.0);
            comm.reduce_scatter(&input, &mut output, op).await.unwrap();
            same(&output, &input, &what("reduce_scatter"));
            output.fill(9.0);
        }
        comm.scan_into(&input, &mut output, ReduceOp::Sum)
            .await
            .unwrap();
        same(&output, &input, &what("scan_into"));
        output.fill(9.0);
        comm.exclusive_scan_into(&input, &mut output, ReduceOp::Sum)
            .await
            .unwrap();
        same(
            &output,
            &vec![9.0; count],
            &what("the output of exclusive_scan_into"),
        );
        comm.all_gather(&input, &mut output).await.unwrap();
        same(&output, &input, &what("all_gather"));
        output.fill(9.0);
        comm.gather(&input, &mut output, 0).await.unwrap();
        same(&output, &input, &what("gather"));
        output.fill(9.0);
        comm.scatter(&input, &mut output, 0).await.unwrap();
        same(&output, &input, &what("scatter"));
        output.fill(9.0);
        comm.all_to_all(&input, &mut output).await.unwrap();
        same(&output, &input, &what("all_to_all"));
        output.fill(9.0);
        comm.neighbor_all_to_all(&[0], &input, &mut output)
            .await
            .unwrap();
        same(&output, &input, &what("neighbor_all_to_all"));
    }
    comm.shutdown().await.unwrap();
}
