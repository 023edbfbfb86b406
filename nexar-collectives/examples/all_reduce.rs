//! All-reduce in ten lines. Run four ranks of it on this machine:
//!
//! ```text
//! cargo build --release --examples
//! cargo run --release --bin nexar-run -- -n 4 -- target/release/examples/all_reduce
//! ```
//!
//! Expected output, in any order of the ranks:
//!
//! ```text
//! [0] rank 0 of 4: sum of all ranks is 6
//! [1] rank 1 of 4: sum of all ranks is 6
//! [2] rank 2 of 4: sum of all ranks is 6
//! [3] rank 3 of 4: sum of all ranks is 6
//! ```

use nexar_collectives::{Communicator, ReduceOp};

#[tokio::main]
async fn main() -> nexar_collectives::Result<()> {
    let comm = Communicator::from_env().await?;
    let mut data = vec![comm.rank() as f32; 1 << 20];
    comm.all_reduce(&mut data, ReduceOp::Sum).await?;
    println!(
        "rank {} of {}: sum of all ranks is {}",
        comm.rank(),
        comm.world_size(),
        data[0]
    );
    comm.shutdown().await
}
