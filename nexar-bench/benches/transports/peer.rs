//! The other processes: this same program, told by a variable what to be. Commands come as lines of JSON
//! on their standard input, whose end ends them; each answer is a line on their standard output.

use crate::{Result, keys::Keys, ranks, subjects};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{env, future::Future, io::Write, net::SocketAddr, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin},
    process::{Child, ChildStdin, ChildStdout, Command},
};

const VARIABLE: &str = "NEXAR_BENCH_PEER";
const ANSWER: &str = "done";

/// What a process is.
#[derive(Serialize, Deserialize)]
pub(crate) enum Role {
    /// The far end of a channel.
    Channel {
        subject: String,
        address: SocketAddr,
        keys: Keys,
    },
    /// A rank other than 0.
    Rank,
}

/// What this process is; `None` for the one that measures.
pub(crate) fn role() -> Result<Option<Role>> {
    match env::var(VARIABLE) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(_) => Ok(None),
    }
}

/// Plays a role until the commands end.
pub(crate) fn run(role: Role) -> Result<()> {
    match role {
        Role::Channel {
            subject,
            address,
            keys,
        } => {
            let subjects = subjects::all();
            let found = subjects.iter().find(|s| s.name() == subject);
            found
                .ok_or_else(|| format!("there is no subject {subject:?}"))?
                .serve(address, &keys)
        }
        Role::Rank => ranks::serve(),
    }
}

/// Says that a command has been carried out, or that this process is ready for it.
pub(crate) fn answer() -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{ANSWER}")?;
    Ok(out.flush()?)
}

/// The commands that this process is given.
pub(crate) struct Commands(Lines<BufReader<Stdin>>);

impl Commands {
    pub(crate) fn new() -> Self {
        Commands(BufReader::new(tokio::io::stdin()).lines())
    }

    pub(crate) async fn next<C: DeserializeOwned>(&mut self) -> Result<Option<C>> {
        match self.0.next_line().await? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }
}

/// A process that this one has started.
pub(crate) struct Peer {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    pub(crate) fn spawn(role: &Role) -> Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .env(VARIABLE, serde_json::to_string(role)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(commands), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the peer has no pipes".into());
        };
        Ok(Peer {
            child,
            commands,
            answers: BufReader::new(answers).lines(),
        })
    }

    pub(crate) async fn command(&mut self, command: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(command)?;
        line.push('\n');
        Ok(self.commands.write_all(line.as_bytes()).await?)
    }

    pub(crate) async fn answer(&mut self) -> Result<()> {
        match self.answers.next_line().await? {
            Some(line) if line == ANSWER => Ok(()),
            Some(line) => Err(format!("the peer said {line:?}").into()),
            None => Err("the peer has ended".into()),
        }
    }

    /// Waits for `work`, but not for what a dead peer will never do.
    pub(crate) async fn while_alive<T>(
        &mut self,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            result = work => result,
            status = self.child.wait() => Err(format!("the peer has ended: {}", status?).into()),
        }
    }

    /// Ends the process and waits for it.
    pub(crate) async fn end(self) -> Result<()> {
        let Peer {
            mut child,
            commands,
            answers: _answers,
        } = self;
        drop(commands);
        let status = child.wait().await?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the peer has failed: {status}").into()),
        }
    }
}
