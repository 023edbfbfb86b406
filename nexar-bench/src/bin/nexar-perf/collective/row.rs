//! Results of a collective.

use crate::{
    measure::Timing,
    report::{Column, format_time, microseconds},
    sweep::Context,
};
use serde::Serialize;
use std::time::Duration;

pub(crate) const COLUMNS: &[Column] = &[
    Column::new(11, "size", "(B)"),
    Column::new(13, "count", "(elements)"),
    Column::new(6, "type", ""),
    Column::new(11, "redop", ""),
    Column::new(5, "root", ""),
    Column::new(10, "time", "(us)"),
    Column::new(7, "algbw", "(GB/s)"),
    Column::new(7, "busbw", "(GB/s)"),
];

/// What was measured at one size.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) dtype: &'static str,
    pub(crate) redop: &'static str,
    pub(crate) root: Option<usize>,
    pub(crate) compressor: Option<String>,
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    pub(crate) timing: Timing,
    pub(crate) bus_factor: f64,
}

/// A JSON line.
#[derive(Serialize)]
struct Record<'a> {
    collective: &'a str,
    ranks: usize,
    transport: &'a str,
    dtype: &'a str,
    redop: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<usize>,
    bytes: usize,
    count: usize,
    time_us: f64,
    p50_us: f64,
    p99_us: f64,
    algbw_gbps: f64,
    busbw_gbps: f64,
    wrong: Option<u64>,
}

impl Row {
    /// Size / time times what makes it comparable between numbers of ranks, in GB/s.
    pub(crate) fn bus_bandwidth(&self) -> f64 {
        bandwidth(self.bytes, self.timing.time) * self.bus_factor
    }

    /// The cells of the columns and the JSON record.
    pub(crate) fn write(self, context: Context<'_>) -> (Vec<String>, impl Serialize) {
        let busbw_gbps = self.bus_bandwidth();
        let record = Record {
            collective: self.name,
            ranks: context.ranks,
            transport: context.transport,
            dtype: self.dtype,
            redop: self.redop,
            compressor: self.compressor,
            beside: context.beside,
            bytes: self.bytes,
            count: self.count,
            time_us: microseconds(self.timing.time),
            p50_us: microseconds(self.timing.p50),
            p99_us: microseconds(self.timing.p99),
            algbw_gbps: bandwidth(self.bytes, self.timing.time),
            busbw_gbps,
            wrong: context.wrong,
        };
        let cells = vec![
            record.bytes.to_string(),
            record.count.to_string(),
            record.dtype.into(),
            record.redop.into(),
            self.root.map_or("-1".into(), |root| root.to_string()),
            format_time(self.timing.time),
            format!("{:.3}", record.algbw_gbps),
            format!("{:.3}", record.busbw_gbps),
        ];
        (cells, record)
    }
}

fn bandwidth(bytes: usize, time: Duration) -> f64 {
    match time.as_secs_f64() {
        seconds if seconds > 0.0 => bytes as f64 / seconds / 1e9,
        _ => 0.0,
    }
}

/// Bus bandwidths of all sizes.
#[derive(Debug, Default)]
pub(crate) struct Average(Vec<f64>);

impl Average {
    pub(crate) fn add(&mut self, row: &Row) {
        self.0.push(row.bus_bandwidth());
    }

    /// The last line of the table.
    pub(crate) fn summary(&self) -> Option<String> {
        let average = self.0.iter().sum::<f64>() / self.0.len() as f64;
        let said = !self.0.is_empty();
        said.then(|| format!("Average bus bandwidth: {average:.3} GB/s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_in_gigabytes_per_second() {
        let time = Duration::from_millis(2);
        assert!((bandwidth(4_000_000, time) - 2.0).abs() < 1e-9);
        assert_eq!(bandwidth(8, Duration::ZERO), 0.0);
        assert_eq!(bandwidth(0, time), 0.0);
    }
}
