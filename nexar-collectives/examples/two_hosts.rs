//! Two ranks on two hosts, described by the program instead of the environment.
//!
//! Make a secret on one host, copy it to the other by a safe way, and build the example on both:
//!
//! ```text
//! openssl rand -hex 32 > cluster.key
//! cargo build --release --examples
//! ```
//!
//! Then, with the address of the first host (here 10.0.0.1) on both, in either order:
//!
//! ```text
//! first$  target/release/examples/two_hosts 0 10.0.0.1:29400 cluster.key
//! second$ target/release/examples/two_hosts 1 10.0.0.1:29400 cluster.key
//! ```
//!
//! Expected output, on the first host:
//!
//! ```text
//! rank 0 of 2 on 10.0.0.1:29400, over quinn
//! rank 0: 1048576 elements, the first 1, the last 2097151, 0 wrong
//! ```
//!
//! and on the second, whose port the system chooses:
//!
//! ```text
//! rank 1 of 2 on 10.0.0.2:51234, over quinn
//! rank 1: 1048576 elements, the first 1, the last 2097151, 0 wrong
//! ```
//!
//! A second host with another secret is told so and ends at once; the first goes on waiting until the time
//! limit for joining.

use nexar_collectives::{Communicator, Rank, ReduceOp, Secret, TimeLimits};
use std::{env, error::Error, process::ExitCode, time::Duration};

const COUNT: usize = 1 << 20;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [rank, seed, secret] = arguments.as_slice() else {
        eprintln!("usage: two_hosts RANK SEED_HOST:PORT SECRET_FILE");
        return ExitCode::from(2);
    };
    match run(rank, seed, secret).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("two_hosts: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The number of wrong elements.
async fn run(rank: &str, seed: &str, secret_file: &str) -> Result<usize, Box<dyn Error>> {
    let comm = Communicator::builder()
        .world_size(2)
        .rank(Rank::Fixed(rank.parse()?))
        .seed(seed)
        .secret(Secret::from_file(secret_file)?)
        .limits(TimeLimits::default().with_join(Duration::from_secs(120)))
        .join()
        .await?;
    let (rank, world) = (comm.rank(), comm.world_size());
    println!(
        "rank {rank} of {world} on {}, over {}",
        comm.local_addr(),
        comm.transport_name()
    );

    // Element i is i on rank 0 and i + 1 on rank 1.
    let mut data: Vec<i32> = (0..COUNT as i32).map(|i| i + rank as i32).collect();
    comm.all_reduce(&mut data, ReduceOp::Sum).await?;

    let wrong = data
        .iter()
        .zip(0..)
        .filter(|(sum, i)| **sum != 2 * i + 1)
        .count();
    println!(
        "rank {rank}: {COUNT} elements, the first {}, the last {}, {wrong} wrong",
        data[0],
        data[COUNT - 1]
    );
    comm.shutdown().await?;
    Ok(wrong)
}
