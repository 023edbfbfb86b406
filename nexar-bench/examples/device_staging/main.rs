//! Measures the staging of GPU memory: copies alone, the network alone, and an all-reduce and messages in which both overlap.
//!
//! ```text
//! cargo build --release -p nexar-bench --features cuda --bin nexar-run --example device_staging
//! target/release/nexar-run -n 2 -- target/release/examples/device_staging
//! ```
//!
//! Every rank takes the GPU of its number, or shares. `nexar-bench/gpu` runs it with the tests on a machine with a GPU;
//! `nexar-bench/staging` runs it without one, on the tests' stand-in for the driver, whose copies take as long as
//! `--stub` says, between network namespaces.

mod checks;
mod pageable;

use clap::Parser;
use nexar_collectives::{
    AnyTransport, Builder, Communicator, DeviceAdapter, MemorySpace, ReduceOp,
    cuda::{CudaAdapter, CudaBuffer},
};
use nexar_cuda_stub::Stub;
use std::{
    error::Error,
    path::{Path, PathBuf},
    time::Instant,
};

type Comm = Communicator<AnyTransport, CudaAdapter>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures the staging of GPU memory
#[derive(Debug, Parser)]
struct Args {
    /// MiB of f32 that are reduced
    #[arg(long, default_value_t = 32)]
    mib: usize,
    /// Times that each is measured; the median counts
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..1000))]
    repeats: u32,
    /// Staging slots
    #[arg(long)]
    slots: Option<usize>,
    /// KiB of a staging slot
    #[arg(long)]
    slot_kib: Option<usize>,
    /// Instead of a GPU, the stand-in of the tests, whose copies move as many MB/s in each direction
    #[arg(long, value_name = "MB/S")]
    stub: Option<u64>,
}

/// What is measured, on all ranks at the same time.
struct Bench<'a> {
    comm: &'a Comm,
    repeats: u32,
}

impl Bench<'_> {
    /// The median of the times of the slowest rank, in seconds.
    async fn time(&self, mut work: impl AsyncFnMut() -> Result<()>) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..=self.repeats {
            self.comm.barrier().await?;
            let start = Instant::now();
            work().await?;
            let mut time = [start.elapsed().as_secs_f64()];
            self.comm.all_reduce(&mut time, ReduceOp::Max).await?;
            times.push(time[0]);
        }
        // The first is for warming up.
        times.remove(0);
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

struct Row {
    what: &'static str,
    seconds: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let stub = args.stub.map(|rate| {
        let stub = Stub::new();
        stub.set("bandwidth_out", rate * 1_000_000);
        stub.set("bandwidth_in", rate * 1_000_000);
        stub
    });
    let path = stub.as_ref().map(|stub| stub.path().to_owned());
    let adapter = adapter(&args, path.as_deref())?;
    let comm = Builder::from_env()?.device(adapter.clone()).join().await?;
    let device = comm.rank() as u32 % adapter.device_count();
    let space = MemorySpace::Device(device);
    if comm.rank() == 0 {
        let (major, minor) = adapter.driver_version()?;
        let (name, ranks) = (adapter.device_name(device)?, comm.world_size());
        let slots = adapter.capabilities();
        println!("{ranks} ranks, {name}, driver for CUDA {major}.{minor}");
        println!("{} slots of {} KiB\n", slots.slots, slots.slot_len >> 10);
    }
    let rows = measure(&comm, &args, space, path).await?;
    if comm.rank() == 0 {
        print(&args, &rows);
        if args.stub.is_none() {
            checks::run(&adapter, space).await?;
        }
    }
    comm.shutdown().await?;
    Ok(())
}

fn adapter(args: &Args, path: Option<&Path>) -> Result<CudaAdapter> {
    let mut builder = CudaAdapter::builder();
    if let Some(path) = path {
        // SAFETY: it is the stand-in for the driver.
        builder = unsafe { builder.driver_path(path) };
    }
    if let Some(slots) = args.slots {
        builder = builder.slots(slots);
    }
    if let Some(kib) = args.slot_kib {
        builder = builder.slot_len(kib << 10);
    }
    Ok(builder.build()?)
}

async fn measure(
    comm: &Comm,
    args: &Args,
    space: MemorySpace,
    driver: Option<PathBuf>,
) -> Result<Vec<Row>> {
    let repeats = args.repeats;
    let bench = Bench { comm, repeats };
    let len = args.mib << 18;
    let mut host: Vec<f32> = (0..len).map(|at| (at % 1000) as f32).collect();
    let mut buffer = CudaBuffer::from_slice(comm.device(), space, &host).await?;
    let mut other = CudaBuffer::from_slice(comm.device(), space, &host).await?;
    let mut rows = Vec::new();
    let mut add = |what, seconds| rows.push(Row { what, seconds });

    add(
        "copy to the host",
        bench
            .time(async || Ok(buffer.copy_to(&mut host).await?))
            .await?,
    );
    add(
        "copy to the device",
        bench
            .time(async || Ok(buffer.copy_from(&host).await?))
            .await?,
    );
    let mut back = host.clone();
    let both = bench.time(async || {
        let (out, into) = tokio::join!(buffer.copy_to(&mut back), other.copy_from(&host));
        out.and(into)?;
        Ok(())
    });
    add("both at the same time", both.await?);
    if let Some(mut pageable) = pageable::Pageable::new(driver.as_deref(), &buffer) {
        add(
            "copy to the host, not pinned",
            bench.time(async || pageable.copy_out(&mut back)).await?,
        );
        add(
            "copy to the device, not pinned",
            bench.time(async || pageable.copy_in(&back)).await?,
        );
    }
    let network = bench.time(async || Ok(comm.all_reduce(&mut host, ReduceOp::Max).await?));
    add("all-reduce of host memory", network.await?);
    let on_device = comm.on_device();
    let staged = bench.time(async || Ok(on_device.all_reduce(&mut buffer, ReduceOp::Max).await?));
    add("all-reduce of device memory", staged.await?);
    let in_turn = bench.time(async || {
        buffer.copy_to(&mut host).await?;
        comm.all_reduce(&mut host, ReduceOp::Max).await?;
        Ok(buffer.copy_from(&host).await?)
    });
    add(
        "copy, all-reduce, copy, one after the other",
        in_turn.await?,
    );
    let (rank, world) = (comm.rank(), comm.world_size());
    let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
    let network = bench.time(async || {
        let received = comm.send_recv(&host, next, 0, &mut back, previous, 0);
        Ok(received.await.map(drop)?)
    });
    add("message to the next rank, host memory", network.await?);
    let staged = bench.time(async || {
        let received = on_device.send_recv(&buffer, next, 0, &mut other, previous, 0);
        Ok(received.await.map(drop)?)
    });
    add("message to the next rank, device memory", staged.await?);
    Ok(rows)
}

fn print(args: &Args, rows: &[Row]) {
    let gigabytes = (args.mib << 20) as f64 / 1e9;
    println!("| {} MiB of f32 | ms | GB/s |\n|---|---|---|", args.mib);
    for row in rows {
        let (ms, rate) = (row.seconds * 1e3, gigabytes / row.seconds);
        println!("| {} | {ms:.1} | {rate:.2} |", row.what);
    }
    let find = |what: &str| {
        let row = rows.iter().find(|row| row.what == what);
        row.map_or(f64::NAN, |row| row.seconds)
    };
    let copies = find("copy to the host").max(find("copy to the device"));
    let floor = copies.max(find("all-reduce of host memory"));
    let ratio = |what| find(what) / floor;
    let message = copies.max(find("message to the next rank, host memory"));
    println!(
        "\nThe longest of copy out, copy in and network takes {:.1} ms; staged, the all-reduce takes {:.2} times as \
         long, one after the other {:.2} times. A staged message takes {:.2} times as long as its longest.",
        floor * 1e3,
        ratio("all-reduce of device memory"),
        ratio("copy, all-reduce, copy, one after the other"),
        find("message to the next rank, device memory") / message,
    );
}
