//! Choice of the instruction set at run time.
//!
//! A [`Task`] is a plain loop. Its body is inlined into one function per instruction set, where the
//! compiler vectorises it for that set. All sets give the same bits: Rust never fuses a multiplication
//! with an addition, and none of the loops reorders operations within an element.

#[cfg(all(
    target_arch = "aarch64",
    target_endian = "little",
    target_feature = "neon"
))]
use super::native::Neon;
#[cfg(target_arch = "x86_64")]
use super::native::{Eight, Sixteen};
use std::sync::OnceLock;

/// A loop over elements, to be compiled for several instruction sets.
pub(super) trait Task {
    /// Runs the loop. Implementations, and whatever they call, are `#[inline(always)]`: that is what
    /// carries the caller's instruction set into the loop.
    fn run(self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    /// What the target has anyway, and portable conversions of binary16.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(all(
        target_arch = "aarch64",
        target_endian = "little",
        target_feature = "neon"
    ))]
    Neon,
}

/// How binary16 is converted.
pub(super) enum Binary16Conversion {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Eight),
    #[cfg(target_arch = "x86_64")]
    Avx512(Sixteen),
    #[cfg(all(
        target_arch = "aarch64",
        target_endian = "little",
        target_feature = "neon"
    ))]
    Neon(Neon),
}

/// An instruction set that this CPU has. Only [`best`](Level::best) and `available` make one, so
/// holding a `Level` is the proof that its instructions may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(Set);

impl Level {
    /// The widest set of this CPU.
    pub(super) fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(Level::detect)
    }

    #[cfg(target_arch = "x86_64")]
    fn detect() -> Level {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        Level(match (avx2, avx512) {
            (true, true) => Set::Avx512,
            (true, false) => Set::Avx2,
            (false, _) => Set::Baseline,
        })
    }

    #[cfg(all(
        target_arch = "aarch64",
        target_endian = "little",
        target_feature = "neon"
    ))]
    fn detect() -> Level {
        // Always true; asked so that the baseline remains a value that exists.
        let neon = std::arch::is_aarch64_feature_detected!("neon");
        Level(if neon { Set::Neon } else { Set::Baseline })
    }

    #[cfg(not(any(
        target_arch = "x86_64",
        all(
            target_arch = "aarch64",
            target_endian = "little",
            target_feature = "neon"
        )
    )))]
    fn detect() -> Level {
        Level(Set::Baseline)
    }

    /// Every set of this CPU, for tests that compare them.
    #[cfg(test)]
    pub(super) fn available() -> Vec<Level> {
        let all = [
            Set::Baseline,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512,
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Set::Neon,
        ];
        all.map(Level)
            .into_iter()
            .filter(|level| *level <= Level::best())
            .collect()
    }

    /// The conversions of binary16 at this level.
    pub(super) fn binary16(self) -> Binary16Conversion {
        match self.0 {
            Set::Baseline => Binary16Conversion::Portable,
            // SAFETY: the existence of this level proves that the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => Binary16Conversion::Avx2(unsafe { Eight::new() }),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => Binary16Conversion::Avx512(unsafe { Sixteen::new() }),
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Set::Neon => Binary16Conversion::Neon(Neon),
        }
    }

    /// The set for loops that do hardly anything but load and store: accesses of 64 bytes at any alignment cross a
    /// boundary of cache lines each time, those of 32 bytes every second time. (A sum of f32 takes a tenth to a
    /// fifth longer with AVX-512.)
    pub(super) fn for_streaming(self) -> Level {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => Level(Set::Avx2),
            _ => self,
        }
    }

    /// Runs a task with this instruction set.
    pub(super) fn run(self, task: impl Task) {
        match self.0 {
            Set::Baseline => task.run(),
            // SAFETY: the existence of this level proves that the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { run_avx2(task) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { run_avx512(task) },
            #[cfg(all(
                target_arch = "aarch64",
                target_endian = "little",
                target_feature = "neon"
            ))]
            Set::Neon => task.run(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn run_avx2(task: impl Task) {
    task.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512(task: impl Task) {
    task.run();
}
