//! The constants of the model: given or measured.

use crate::measure::{MeasureError, Perf, kernel_ns_per_byte};
use clap::Args;
use nexar_collectives::tune::{Hosts, Machine};
use std::{hint::black_box, thread};

const KIB: f64 = 1024.0;

/// What is given; the rest is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Constants {
    /// Between ranks of one host: time of a message beyond what processors are busy, in microseconds
    #[arg(long, value_name = "US", value_parser = number)]
    alpha_us: Option<f64>,

    /// For which a processor is busy with a message, at each end, in microseconds
    #[arg(long, value_name = "US", value_parser = number)]
    overhead_us: Option<f64>,

    /// For which a processor is busy with each KiB of a message, at each end, in nanoseconds
    #[arg(long, value_name = "NS", value_parser = number)]
    handling_ns_per_kib: Option<f64>,

    /// For which a processor is busy to combine a KiB, in nanoseconds
    #[arg(long, value_name = "NS", value_parser = number)]
    gamma_ns_per_kib: Option<f64>,

    /// For which a processor is busy to copy a KiB, in nanoseconds
    #[arg(long, value_name = "NS", value_parser = number)]
    delta_ns_per_kib: Option<f64>,

    /// Processors that the ranks of one host share [default: those of this machine]
    #[arg(long)]
    cores: Option<usize>,

    /// Between hosts: the latency of a message, one way, in microseconds
    #[arg(long, value_name = "US", default_value = "75", value_parser = number)]
    network_alpha_us: f64,

    /// Between hosts: the time of a KiB on the wire, in nanoseconds; that of 25 Gbit/s is 328
    #[arg(long, value_name = "NS", default_value = "328", value_parser = number)]
    beta_ns_per_kib: f64,
}

fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("expected a number that is not negative".into()),
    }
}

impl Constants {
    /// All constants, of which those that are not given are measured.
    pub(crate) fn complete(&self, perf: &Perf) -> Result<Known, MeasureError> {
        let given = (self.alpha_us, self.overhead_us, self.handling_ns_per_kib);
        let (alpha_us, overhead_us, handling) = match given {
            (Some(alpha), Some(overhead), Some(handling)) => (alpha, overhead, handling),
            (alpha, overhead, handling) => {
                let messages = perf.messages()?;
                let overhead = overhead.unwrap_or(messages.overhead_us);
                let waiting = (messages.latency_us - 2.0 * overhead).max(0.0);
                let handling = handling.unwrap_or(messages.handling_ns_per_byte * KIB);
                (alpha.unwrap_or(waiting), overhead, handling)
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let sum = |into: &mut [f32], from: &[f32]| {
            for (into, from) in into.iter_mut().zip(from) {
                *into += *from;
            }
        };
        let copy = |into: &mut [f32], from: &[f32]| black_box(into).copy_from_slice(from);
        let measured = |kernel: fn(&mut [f32], &[f32])| kernel_ns_per_byte(kernel) * KIB;
        Ok(Known {
            alpha_us: rounded(alpha_us),
            overhead_us: rounded(overhead_us),
            handling_ns_per_kib: rounded(handling),
            gamma_ns_per_kib: rounded(self.gamma_ns_per_kib.unwrap_or_else(|| measured(sum))),
            delta_ns_per_kib: rounded(self.delta_ns_per_kib.unwrap_or_else(|| measured(copy))),
            cores: self.cores.unwrap_or(cores),
            network_alpha_us: self.network_alpha_us,
            beta_ns_per_kib: self.beta_ns_per_kib,
        })
    }
}

/// To the digits with which it is printed, so that the printed command gives the same table.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The constants that a table follows from.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    alpha_us: f64,
    overhead_us: f64,
    handling_ns_per_kib: f64,
    gamma_ns_per_kib: f64,
    delta_ns_per_kib: f64,
    cores: usize,
    network_alpha_us: f64,
    beta_ns_per_kib: f64,
}

impl Known {
    /// The model's machine.
    pub(crate) fn machine(&self, hosts: Hosts) -> Machine {
        let (alpha_us, beta, cores) = match hosts {
            Hosts::One => (self.alpha_us, 0.0, Some(self.cores)),
            Hosts::Several => (self.network_alpha_us, self.beta_ns_per_kib, None),
        };
        Machine {
            alpha_ns: alpha_us * 1e3,
            overhead_ns: self.overhead_us * 1e3,
            beta_ns_per_byte: beta / KIB,
            handling_ns_per_byte: self.handling_ns_per_kib / KIB,
            gamma_ns_per_byte: self.gamma_ns_per_kib / KIB,
            delta_ns_per_byte: self.delta_ns_per_kib / KIB,
            cores,
        }
    }

    /// The machines that a table is for: of one host, one whose ranks share its processors, and one that has a
    /// processor for each.
    pub(crate) fn machines(&self, hosts: Hosts) -> Vec<Machine> {
        let machine = self.machine(hosts);
        let alone = Machine {
            cores: None,
            ..machine
        };
        match hosts {
            Hosts::One => vec![machine, alone],
            Hosts::Several => vec![machine],
        }
    }

    /// The options that give these constants, one a line.
    pub(crate) fn options(&self) -> Vec<String> {
        vec![
            format!("--alpha-us {}", self.alpha_us),
            format!("--overhead-us {}", self.overhead_us),
            format!("--handling-ns-per-kib {}", self.handling_ns_per_kib),
            format!("--gamma-ns-per-kib {}", self.gamma_ns_per_kib),
            format!("--delta-ns-per-kib {}", self.delta_ns_per_kib),
            format!("--cores {}", self.cores),
            format!("--network-alpha-us {}", self.network_alpha_us),
            format!("--beta-ns-per-kib {}", self.beta_ns_per_kib),
        ]
    }

    /// The constants, for people.
    pub(crate) fn describe(&self) -> String {
        format!("constants: {}\n", self.options().join(" "))
    }
}
