//! Sizes in bytes.

pub(crate) use nexar_bench::options::readable;

/// Reads a size: a number with an optional K, M or G (binary), which may have a fraction as long as the
/// result is whole: `8`, `64K`, `1.5M`, `1GiB`.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match number.as_bytes().last() {
        Some(b'k') => (&number[..number.len() - 1], 10),
        Some(b'm') => (&number[..number.len() - 1], 20),
        Some(b'g') => (&number[..number.len() - 1], 30),
        _ => (number, 0),
    };
    scaled(digits.trim(), shift)
        .ok_or_else(|| format!("'{text}' is not a whole number of bytes, such as 8, 64K or 1.5M"))
}

/// `digits` times 2^`shift`, if that is a whole number.
fn scaled(digits: &str, shift: u32) -> Option<usize> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let decimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !decimal(whole) || !decimal(fraction) {
        return None;
    }
    let unit = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let value: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = value.checked_mul(1 << shift)?;
    if scaled % unit != 0 {
        return None;
    }
    usize::try_from(scaled / unit)
        .ok()
        .filter(|bytes| isize::try_from(*bytes).is_ok())
}

/// Sizes from `min` to `max`, each `factor` times the one before.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    next: Option<usize>,
    max: usize,
    factor: usize,
}

impl Sweep {
    pub(crate) fn new(min: usize, max: usize, factor: u32) -> Self {
        Sweep {
            next: Some(min),
            max,
            factor: factor as usize,
        }
    }
}

impl Iterator for Sweep {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let size = self.next.filter(|size| *size <= self.max)?;
        self.next = size.checked_mul(self.factor).filter(|next| *next > size);
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary() {
        for (text, bytes) in [
            ("8", 8),
            ("0", 0),
            ("64K", 65_536),
            ("1.5M", 1_572_864),
            ("50m", 52_428_800),
            ("2 KiB", 2048),
            ("1GB", 1 << 30),
            ("0.5k", 512),
            ("12b", 12),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "K",
            "-8",
            "1.3",
            "0.3K",
            "8T",
            "1e3",
            "1.2.3M",
            "99999999999G",
            ".5M",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        let read: Vec<_> = [8, 1023, 65_536, 1_572_864, 1 << 30].map(readable).into();
        assert_eq!(read, ["8 B", "1023 B", "64 KiB", "1.5 MiB", "1 GiB"]);
    }

    #[test]
    fn sweeps_end() {
        let sizes = |min, max, factor| Sweep::new(min, max, factor).collect::<Vec<_>>();
        assert_eq!(sizes(12, 600, 7), [12, 84, 588]);
        assert_eq!(sizes(8, 64, 2), [8, 16, 32, 64]);
        assert_eq!(sizes(0, 0, 2), [0]);
        assert_eq!(sizes(usize::MAX, usize::MAX, 2), [usize::MAX]);
    }
}
