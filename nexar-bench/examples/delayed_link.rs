//! A link that takes time: two network interfaces (Linux, TUN), and what is sent on one comes out of the other later.
//! `nexar-bench/links` puts each into a network namespace, as the two ends of a long path; netem would do the same in
//! the kernel, where it is compiled in.
//!
//! ```text
//! delayed_link FIRST SECOND MILLISECONDS
//! ```
//!
//! It needs root, says `ready` when the interfaces exist, and ends with its standard input. A link holds at most
//! 65,536 packets in each direction; what else is sent meanwhile waits in the interface's queue, and is lost when
//! that is full.

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::{
    env,
    error::Error,
    ffi::c_int,
    fs::{File, OpenOptions},
    io::{Read, Write, stdin},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Packets under way in one direction.
const MAX_UNDER_WAY: usize = 1 << 16;

const LARGEST_PACKET: usize = 1 << 16;

const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
/// `IFF_TUN | IFF_NO_PI`: IP packets, with nothing before them.
const IP_PACKETS: i16 = 0x1001;

/// `struct ifreq` as this request reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [first, second, delay] = &args[..] else {
        return Err("delayed_link FIRST SECOND MILLISECONDS".into());
    };
    let delay = Duration::from_millis(delay.parse()?);
    let (first, second) = (Arc::new(interface(first)?), Arc::new(interface(second)?));
    carry(Arc::clone(&first), Arc::clone(&second), delay);
    carry(second, first, delay);
    println!("ready");
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A new interface; it goes away with the file.
fn interface(name: &str) -> Result<File> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IP_PACKETS,
        rest: [0; 22],
    };
    // The last byte stays 0.
    if name.len() >= request.name.len() {
        return Err(format!("{name:?} is too long for the name of an interface").into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which is 40 bytes on 64-bit Linux, as the request is.
    unsafe { ioctl(&file, Setter::<TUNSETIFF, _>::new(request))? };
    Ok(file)
}

/// Starts to carry packets in one direction.
fn carry(from: Arc<File>, to: Arc<File>, delay: Duration) {
    let (sender, receiver) = sync_channel(MAX_UNDER_WAY);
    spawn(move || take(&from, &sender, delay));
    spawn(move || deliver(&to, &receiver));
}

fn take(from: &File, under_way: &SyncSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; LARGEST_PACKET];
    // Interfaces that are down give errors.
    loop {
        match (&*from).read(&mut buffer) {
            Ok(length) => {
                let packet = buffer[..length].to_vec();
                if under_way.send((Instant::now() + delay, packet)).is_err() {
                    return;
                }
            }
            Err(_) => sleep(Duration::from_millis(1)),
        }
    }
}

fn deliver(to: &File, under_way: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, packet)) = under_way.recv() {
        sleep(due.saturating_duration_since(Instant::now()));
        // A packet that an interface refuses is lost.
        let _ = (&*to).write(&packet);
    }
}
