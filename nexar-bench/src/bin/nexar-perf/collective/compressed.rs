//! The compressed all-reduce, whose result is not exact.

use super::row::{self, Average, Row};
use crate::{
    args::Args,
    check::{Pattern, Verdict},
    measure::{Operation, Repeats, Timing, measure},
    rank::RankError,
    report::Column,
    sweep::{Benchmark, Context, allocate},
    values::{Place, Value},
};
use nexar_collectives::{
    Communicator, ReduceOp, Result,
    compression::{BlockQuantization, Compression, Compressor, RandomK, TopK},
};
use serde::Serialize;
use std::{fmt, str::FromStr};

/// Of the random selection; the same on all ranks.
const SEED: u64 = 1;

/// How data is compressed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Method {
    TopK(f64),
    RandomK(f64),
    Blocks(usize),
}

impl Method {
    fn compressor(self) -> std::result::Result<Box<dyn Compressor>, String> {
        let boxed: std::result::Result<Box<dyn Compressor>, _> = match self {
            Method::TopK(ratio) => TopK::new(ratio).map(|c| Box::new(c) as _),
            Method::RandomK(ratio) => RandomK::new(ratio, SEED).map(|c| Box::new(c) as _),
            Method::Blocks(block) => BlockQuantization::new(block).map(|c| Box::new(c) as _),
        };
        boxed.map_err(|error| error.to_string())
    }
}

impl FromStr for Method {
    type Err = String;

    /// `top-k:0.01`, `random-k:0.01` or `blocks:256`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let unknown = || "expected top-k:RATIO, random-k:RATIO or blocks:LENGTH".to_string();
        let (name, setting) = text.split_once(':').ok_or_else(unknown)?;
        let ratio = || setting.parse().map_err(|_| unknown());
        let method = match name {
            "top-k" => Method::TopK(ratio()?),
            "random-k" => Method::RandomK(ratio()?),
            "blocks" => Method::Blocks(setting.parse().map_err(|_| unknown())?),
            _ => return Err(unknown()),
        };
        method.compressor().map(|_| method)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::TopK(ratio) => write!(f, "top-k:{ratio}"),
            Method::RandomK(ratio) => write!(f, "random-k:{ratio}"),
            Method::Blocks(block) => write!(f, "blocks:{block}"),
        }
    }
}

/// A compressed all-reduce at several sizes, in place.
pub(crate) struct Compressed<'a> {
    comm: &'a Communicator,
    args: &'a Args,
    method: String,
    op: ReduceOp,
    count: usize,
    data: Vec<f32>,
    state: Compression<Box<dyn Compressor>>,
    average: Average,
}

impl<'a> Compressed<'a> {
    pub(crate) fn new(
        comm: &'a Communicator,
        args: &'a Args,
    ) -> std::result::Result<Self, RankError> {
        let largest = args.sizes().last().unwrap_or_default();
        let compressor = args.compressor.compressor().map_err(RankError::Usage)?;
        Ok(Compressed {
            comm,
            args,
            method: args.compressor.to_string(),
            op: args.op,
            count: 0,
            data: allocate(largest / size_of::<f32>())?,
            state: Compression::new(compressor),
            average: Average::default(),
        })
    }

    /// Puts known values in, and forgets what is left of other calls.
    fn fill(&mut self) {
        let (world, rank) = (self.comm.world_size(), self.comm.rank());
        let input = |index| f32::input(Some(self.op), world, Place { rank, index });
        Pattern::new(self.count, input).fill(0, &mut self.data[..self.count]);
        self.state.restore(Vec::new(), 0);
    }

    /// The result and what all ranks have kept back add up to what they put in, up to rounding, and every
    /// rank has the same result.
    async fn compare(&self, verdict: &mut Verdict) -> Result<()> {
        let (residuals, agreement) = (self.residuals().await?, self.agreement().await?);
        let world = self.comm.world_size();
        let parts = match self.op {
            ReduceOp::Average => world as f64,
            _ => 1.0,
        };
        // What ranks put in is at most 2^24 together, so that adding another rank's part is off by 1 at most.
        let tolerance = 2.0 * world as f64;
        let exact = Pattern::new(self.count, |index| {
            f32::reduced(self.op, world, 0..world, index)
        });
        let mut expected = vec![0.0; self.count];
        exact.fill(0, &mut expected);
        for (index, expected) in expected.into_iter().enumerate() {
            let got = self.data[index];
            let whole = f64::from(got) + residuals[index] / parts;
            let error = (whole - f64::from(expected)).abs();
            if error > tolerance || error.is_nan() || !agreement[index] {
                verdict.add(index, &got, &expected);
            }
        }
        Ok(())
    }

    /// What all ranks have kept back of each element, together.
    async fn residuals(&self) -> Result<Vec<f64>> {
        let own = self.state.residual().iter().copied().map(f64::from);
        let mut residuals: Vec<f64> = own.collect();
        residuals.resize(self.count, 0.0);
        self.comm.all_reduce(&mut residuals, ReduceOp::Sum).await?;
        Ok(residuals)
    }

    /// Which elements have the same bits on all ranks.
    async fn agreement(&self) -> Result<Vec<bool>> {
        let mut least: Vec<u32> = (self.data[..self.count].iter())
            .map(|value| value.to_bits())
            .collect();
        let mut greatest = least.clone();
        self.comm.all_reduce(&mut least, ReduceOp::Min).await?;
        self.comm.all_reduce(&mut greatest, ReduceOp::Max).await?;
        Ok(least.iter().zip(&greatest).map(|(a, b)| a == b).collect())
    }
}

impl Operation for Compressed<'_> {
    fn comm(&self) -> &Communicator {
        self.comm
    }

    async fn run(&mut self) -> Result<()> {
        let data = &mut self.data[..self.count];
        let (op, state) = (self.op, &mut self.state);
        self.comm.all_reduce_compressed(data, op, state).await
    }
}

impl Benchmark for Compressed<'_> {
    type Figures = Timing;

    const COLUMNS: &'static [Column] = row::COLUMNS;

    fn comm(&self) -> &Communicator {
        self.comm
    }

    fn headline(&self) -> String {
        format!(", {}{}", self.method, self.args.describe_sizes())
    }

    fn resize(&mut self, bytes: usize) {
        self.count = bytes / size_of::<f32>();
    }

    async fn check(&mut self, verdict: &mut Verdict) -> Result<()> {
        self.fill();
        self.run().await?;
        self.compare(verdict).await
    }

    async fn measure(&mut self, repeats: Repeats) -> Result<Timing> {
        self.fill();
        // The same work as for a sum, and values stay what they are when it runs over and over.
        let op = std::mem::replace(&mut self.op, ReduceOp::Average);
        let timing = measure(self, repeats).await;
        self.op = op;
        timing
    }

    fn row(&mut self, timing: Timing, context: Context<'_>) -> (Vec<String>, impl Serialize) {
        let n = context.ranks as f64;
        let row = Row {
            name: self.args.subject.name(),
            dtype: "f32",
            redop: self.op.name(),
            root: None,
            compressor: Some(self.method.clone()),
            bytes: self.count * size_of::<f32>(),
            count: self.count,
            timing,
            bus_factor: 2.0 * (n - 1.0) / n,
        };
        self.average.add(&row);
        row.write(context)
    }

    fn summary(&self) -> Option<String> {
        self.average.summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[tokio::test]
    async fn a_wrong_element_is_noticed_and_named() {
        let words = ["nexar-perf", "all-reduce-compressed", "--max", "4K"];
        for compressor in ["top-k:0.1", "random-k:0.1", "blocks:32"] {
            let options = ["--compressor", compressor];
            let args = words.iter().chain(&options);
            let args = Args::try_parse_from(args).unwrap();
            let ranks = Communicator::local(1).await.unwrap();
            let mut work = Compressed::new(&ranks[0], &args).unwrap();
            work.resize(400);
            let mut verdict = Verdict::default();
            work.check(&mut verdict).await.unwrap();
            assert_eq!(verdict.wrong, 0, "{compressor}");
            work.data[77] += 16.0;
            work.compare(&mut verdict).await.unwrap();
            assert_eq!((verdict.wrong, verdict.mistakes[0].index), (1, 77));
        }
    }

    #[test]
    fn methods_are_written_as_they_are_read() {
        for text in ["top-k:0.01", "random-k:0.5", "blocks:256"] {
            let method: Method = text.parse().unwrap();
            assert_eq!(method.to_string(), text);
        }
        for text in [
            "top-k",
            "top-k:2",
            "random-k:x",
            "blocks:0",
            "blocks:-1",
            "zip:9",
            "",
        ] {
            assert!(text.parse::<Method>().is_err(), "{text}");
        }
    }
}
