//! A path with a delay: a process that passes datagrams on after some time.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

/// Datagrams on their way, in each direction of each client; what comes on top is lost.
const QUEUE: usize = 4096;

/// Longest datagram.
const DATAGRAM: usize = 65_535;

/// Passes everything that comes to `listen` on to `target`, from one socket per client, and what comes back to
/// that client, all of it after `delay`. Calls `ready` once it listens. Returns only if it fails.
pub(crate) fn run(
    delay: Duration,
    listen: SocketAddr,
    target: SocketAddr,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let front = Arc::new(UdpSocket::bind(listen)?);
    ready();
    let mut clients = HashMap::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let (length, client) = front.recv_from(&mut buffer)?;
        let onward = match clients.get(&client) {
            Some(onward) => onward,
            None => {
                let back = UdpSocket::bind(SocketAddr::new(listen.ip(), 0))?;
                back.connect(target)?;
                let onward = new_client(&front, Arc::new(back), client, delay);
                clients.entry(client).or_insert(onward)
            }
        };
        pass(onward, &buffer[..length], delay);
    }
}

type Delayed = (Instant, Vec<u8>);

/// Starts the way back from the target to a client; gives the way onward.
fn new_client(
    front: &Arc<UdpSocket>,
    back: Arc<UdpSocket>,
    client: SocketAddr,
    delay: Duration,
) -> SyncSender<Delayed> {
    let (onward, to_target) = mpsc::sync_channel(QUEUE);
    let (homeward, to_client) = mpsc::sync_channel(QUEUE);
    let (front, target) = (Arc::clone(front), Arc::clone(&back));
    thread::spawn(move || deliver(to_target, |datagram| target.send(datagram)));
    thread::spawn(move || deliver(to_client, |datagram| front.send_to(datagram, client)));
    thread::spawn(move || {
        let mut buffer = vec![0; DATAGRAM];
        loop {
            // An error is the answer to an earlier datagram, which is lost.
            if let Ok(length) = back.recv(&mut buffer) {
                pass(&homeward, &buffer[..length], delay);
            }
        }
    });
    onward
}

fn pass(queue: &SyncSender<Delayed>, datagram: &[u8], delay: Duration) {
    // A full queue loses the datagram, as a router would.
    let _ = queue.try_send((Instant::now() + delay, datagram.to_vec()));
}

fn deliver(queue: Receiver<Delayed>, send: impl Fn(&[u8]) -> io::Result<usize>) {
    for (due, datagram) in queue {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // What cannot be sent is lost.
        let _ = send(&datagram);
    }
}
