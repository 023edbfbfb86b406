//! Numbers and times in tables.

use std::{
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

/// Three significant digits, or all before the point, with commas.
pub(crate) fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// A time of so many microseconds.
pub(crate) fn duration(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", significant(us)),
        us if us < 1e6 => format!("{} ms", significant(us / 1e3)),
        us => format!("{} s", significant(us / 1e6)),
    }
}

/// The day, UTC.
pub(crate) fn date(time: SystemTime) -> String {
    let days = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
        / 86_400;
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02}")
}

/// The day and minute, UTC.
pub(crate) fn minute(time: SystemTime) -> String {
    let minutes = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
        / 60;
    let mut text = date(time);
    // Writing to a string cannot fail.
    let _ = write!(text, " {:02}:{:02}", minutes / 60 % 24, minutes % 60);
    text
}

/// Year, month and day, so many days after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_commas() {
        let shown = [
            0.0,
            0.0261,
            0.99951,
            1.005,
            9.994,
            9.996,
            99.94,
            99.96,
            1234.5,
            1_234_567.8,
        ];
        let expected = [
            "0.000",
            "0.026",
            "1.00",
            "1.00",
            "9.99",
            "10.0",
            "99.9",
            "100",
            "1,234",
            "1,234,568",
        ];
        assert_eq!(shown.map(significant), expected);
    }

    #[test]
    fn times_have_units() {
        let shown = [7.25, 999.0, 1500.0, 65_432.1, 2_500_000.0].map(duration);
        assert_eq!(shown, ["7.25 us", "999 us", "1.50 ms", "65.4 ms", "2.50 s"]);
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_322), (2000, 12, 31));
        assert_eq!(civil(11_323), (2001, 1, 1));
        assert_eq!(civil(20_787), (2026, 11, 30));
    }
}
