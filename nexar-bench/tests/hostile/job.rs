//! Groups of ranks on the hosts of a network.

use crate::{net::Net, process::Process, rank::TASK, transports::Mix};
use std::{net::SocketAddr, process::Command, time::Duration};

const PERF: &str = env!("CARGO_BIN_EXE_nexar-perf");

/// The port of every rank, each of which has an address of its own; also that of the seed.
pub(crate) const PORT: u16 = 29_400;

/// Long enough for a group to form, or for a process to end, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A group to start: rank 0 on the first host, and so on, from the beginning again after the last.
pub(crate) struct Job<'a> {
    net: &'a Net,
    mix: Mix,
    world: usize,
    settings: Vec<(String, String)>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(net: &'a Net, mix: Mix, world: usize) -> Self {
        let seed = SocketAddr::new(net.host(0).address, PORT).to_string();
        let secret = "5e1f0b7c93d24a6880b1c2d3e4f5061728394a5b6c7d8e9f00112233445566aa";
        let job = Job {
            net,
            mix,
            world,
            settings: Vec::new(),
        };
        job.with("NEXAR_WORLD_SIZE", &world.to_string())
            .with("NEXAR_SEED", &seed)
            .with("NEXAR_SECRET", secret)
            .with("NEXAR_TIMEOUT_SECS", "60")
    }

    /// With another environment variable for all ranks.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With another detection time.
    pub(crate) fn detection(self, seconds: &str) -> Self {
        self.with("NEXAR_DETECTION_SECS", seconds)
    }

    /// Starts every rank on `task`, and waits until the group has formed.
    pub(crate) fn start(&self, task: &str) -> Vec<Process> {
        let ranks: Vec<Process> = (0..self.world)
            .map(|rank| self.rank(rank, task, &[]))
            .collect();
        wait_for_all(&ranks, "joined", SOON);
        ranks
    }

    /// Starts one rank, with settings of its own.
    pub(crate) fn rank(&self, rank: usize, task: &str, settings: &[(&str, &str)]) -> Process {
        let mut command = self.test_program(rank);
        command.env(TASK, task);
        self.spawn(rank, command, settings)
    }

    /// Starts one rank of `nexar-perf`.
    pub(crate) fn perf(&self, rank: usize, args: &[&str], settings: &[(&str, &str)]) -> Process {
        let mut command = self.host(rank).command(PERF);
        command.args(args).args(["--json", "-"]);
        self.spawn(rank, command, settings)
    }

    fn host(&self, rank: usize) -> &crate::net::Host {
        &self.net.hosts()[rank % self.net.hosts().len()]
    }

    fn test_program(&self, rank: usize) -> Command {
        test_program(self.host(rank))
    }

    fn spawn(&self, rank: usize, mut command: Command, settings: &[(&str, &str)]) -> Process {
        command
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .env("NEXAR_RANK", rank.to_string())
            .env("NEXAR_TRANSPORT", self.mix.of(rank).name())
            .envs(settings.iter().copied());
        Process::start(format!("rank {rank}"), &mut command)
    }
}

/// This program, to run as a rank or as a relay.
pub(crate) fn test_program(host: &crate::net::Host) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = host.command(program.to_str().unwrap());
    command.args(["--exact", "rank::rank", "--ignored", "--nocapture"]);
    command
}

/// Waits until all have said a line that begins with `start`.
pub(crate) fn wait_for_all(ranks: &[Process], start: &str, limit: Duration) {
    for rank in ranks {
        rank.expect(start, limit);
    }
}

/// Waits until all have ended without a failure.
pub(crate) fn all_succeed(ranks: &mut [Process], limit: Duration) {
    for rank in ranks {
        rank.succeeds(limit);
    }
}

/// Tells rank 0 to finish, and waits until all have.
pub(crate) fn finish(ranks: &mut [Process], limit: Duration) {
    ranks[0].say("stop");
    all_succeed(ranks, limit);
}
