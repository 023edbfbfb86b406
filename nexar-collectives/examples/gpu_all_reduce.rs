//! An all-reduce of GPU memory; each rank takes the GPU of its number, or shares.
//!
//! ```text
//! cargo build --release --bins --examples --features nexar-collectives/cuda
//! target/release/nexar-run -n 2 -- target/release/examples/gpu_all_reduce
//! ```
//!
//! Expected output, with other names:
//!
//! ```text
//! [0] rank 0 of 2 on NVIDIA H100 PCIe: 1048576 elements are 3
//! [1] rank 1 of 2 on NVIDIA H100 PCIe: 1048576 elements are 3
//! ```
//!
//! Without a GPU it says what is missing.

use nexar_collectives::{Builder, DeviceBuffer, MemorySpace, ReduceOp, cuda::CudaAdapter};
use std::error::Error;

const COUNT: usize = 1 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cuda = CudaAdapter::new()?;
    let comm = Builder::from_env()?.device(cuda.clone()).join().await?;
    let (rank, world) = (comm.rank(), comm.world_size());
    let gpu = rank as u32 % cuda.device_count();

    let data = vec![rank as f32 + 1.0; COUNT];
    let mut buffer = DeviceBuffer::from_slice(&cuda, MemorySpace::Device(gpu), &data).await?;
    comm.on_device()
        .all_reduce(&mut buffer, ReduceOp::Sum)
        .await?;

    let mut sums = vec![0.0; COUNT];
    buffer.copy_to(&mut sums).await?;
    let expected = (world * (world + 1) / 2) as f32;
    if let Some(at) = sums.iter().position(|sum| *sum != expected) {
        return Err(format!("element {at} is {}, not {expected}", sums[at]).into());
    }
    let name = cuda.device_name(gpu)?;
    println!("rank {rank} of {world} on {name}: {COUNT} elements are {expected}");
    comm.shutdown().await?;
    Ok(())
}
