//! smoke
use nexar_collectives::{Communicator, ReduceOp};

#[tokio::test]
async fn two() {
    let ranks = Communicator::local(2).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for comm in ranks {
        tasks.spawn(async move {
            let mut data = vec![comm.rank() as f32 + 1.0; 1 << 20];
            comm.all_reduce(&mut data, ReduceOp::Sum).await.unwrap();
            assert!(data.iter().all(|x| *x == 3.0));
            comm.barrier().await.unwrap();
            comm.shutdown().await.unwrap();
        });
    }
    tasks.join_all().await;
}
