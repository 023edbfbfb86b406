//! The all-reduce over its size.

use super::{
    CompareError, Results, Subject,
    plan::{Line, Operation, SIZES},
};
use crate::{
    options::readable,
    report::chart::{BLUE, DARK, FONT, GRID, ORANGE, TEXT, TITLE},
};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

const SIZE: (u32, u32) = (900, 720);

/// Height of the line with the names.
const LEGEND: u32 = 34;

/// Room of a panel for its numbers.
const LEFT: u32 = 62;
const BELOW: u32 = 30;

/// A library's times: of which sizes, and how long in microseconds.
struct Series {
    subject: Subject,
    times: Vec<(usize, f64)>,
}

fn color(subject: Subject) -> RGBColor {
    match subject {
        Subject::Quinn => BLUE,
        Subject::S2nQuic => RGBColor(92, 179, 214),
        Subject::OpenMpi => ORANGE,
        Subject::Gloo => RGBColor(96, 153, 72),
        Subject::Nexar02 => RGBColor(178, 62, 74),
        Subject::Nexar02Quic => RGBColor(140, 112, 168),
    }
}

/// The chart of so many ranks as an SVG: the time over the size, and the bus bandwidth over the size. `None` if
/// nothing of it has been measured.
///
/// # Errors
///
/// [`CompareError::Chart`].
pub fn chart(results: &Results, ranks: usize) -> Result<Option<String>, CompareError> {
    let all: Vec<_> = Subject::ALL
        .into_iter()
        .map(|subject| series(results, ranks, subject))
        .filter(|series| !series.times.is_empty())
        .collect();
    if all.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw(&area, ranks, &all).map_err(|e| CompareError::Chart(e.to_string()))?;
    drop(area);
    Ok(Some(svg))
}

fn series(results: &Results, ranks: usize, subject: Subject) -> Series {
    let time = |&bytes: &usize| {
        let line = Line::new(Operation::AllReduce, ranks, bytes);
        let time = results.entry(&line)?.time(subject)?;
        (time > 0.0).then_some((bytes, time))
    };
    Series {
        subject,
        times: SIZES.iter().filter_map(time).collect(),
    }
}

/// Where a size stands: each power of two has the same width.
fn place(bytes: usize) -> f64 {
    (bytes as f64).log2()
}

/// GB/s that a rank's links carry, whatever the number of ranks.
fn bus_bandwidth(ranks: usize, bytes: usize, us: f64) -> f64 {
    let ranks = ranks as f64;
    bytes as f64 / us / 1e3 * 2.0 * (ranks - 1.0) / ranks
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(area: &Area<'a>, ranks: usize, all: &[Series]) -> Result<(), DrawError<'a>> {
    area.fill(&WHITE)?;
    let title = (FONT, TITLE).into_font().color(&DARK);
    let area = area.titled(&format!("All-reduce of {ranks} ranks, by size"), title)?;
    let (names, panels) = area.split_vertically(LEGEND);
    legend(&names, all)?;
    let (above, below) = panels.split_vertically(panels.dim_in_pixel().1 / 2);
    // The logarithm makes decades equally high.
    let times = points(all, |_, us| us.log10());
    let (low, high) = range(&times);
    let decades = (low.floor() as i32)..=(high.ceil() as i32);
    let ticks: Vec<_> = decades
        .map(|power| (f64::from(power), power_of_ten(power)))
        .collect();
    panel(&above, "time", &ticks, &times)?;
    let rates = points(all, |bytes, us| bus_bandwidth(ranks, bytes, us));
    let ticks = rate_ticks(range(&rates).1);
    panel(&below, "bus bandwidth, GB/s", &ticks, &rates)?;
    area.present()
}

/// The points of each library in a panel.
type Points = Vec<(RGBColor, Vec<(f64, f64)>)>;

fn points(all: &[Series], height: impl Fn(usize, f64) -> f64) -> Points {
    let at = |&(bytes, us): &(usize, f64)| (place(bytes), height(bytes, us));
    all.iter()
        .map(|series| (color(series.subject), series.times.iter().map(at).collect()))
        .collect()
}

fn range(points: &Points) -> (f64, f64) {
    let heights = points.iter().flat_map(|(_, points)| points);
    heights.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (_, y)| {
        (low.min(*y), high.max(*y))
    })
}

fn power_of_ten(power: i32) -> String {
    let (unit, rest) = match power {
        ..3 => ("us", power),
        3..6 => ("ms", power - 3),
        _ => ("s", power - 6),
    };
    format!("{} {unit}", 10_f64.powi(rest))
}

/// From 0 to at least `highest`, in up to seven round steps.
fn rate_ticks(highest: f64) -> Vec<(f64, String)> {
    let steps = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
    let step = steps.into_iter().find(|step| highest / step <= 6.0);
    let step = step.unwrap_or(highest / 6.0);
    let last = (highest / step).ceil().max(1.0) as u32;
    let tick = |i| (f64::from(i) * step, format!("{:.1}", f64::from(i) * step));
    (0..=last).map(tick).collect()
}

/// The names beside each other.
fn legend<'a>(area: &Area<'a>, all: &[Series]) -> Result<(), DrawError<'a>> {
    let text = (FONT, TEXT).into_font().color(&DARK);
    let style = text.pos(Pos::new(HPos::Left, VPos::Center));
    let (middle, mut x) = (LEGEND as i32 / 2, LEFT as i32);
    for series in all {
        let color = color(series.subject);
        let name = series.subject.title();
        let name = match series.subject.peer() {
            None => format!("nexar on {name}"),
            Some(_) => name.to_owned(),
        };
        area.draw(&Rectangle::new(
            [(x, middle - 6), (x + 12, middle + 6)],
            color.filled(),
        ))?;
        // Letters of this size are about half as wide as high.
        let width = 18 + name.chars().count() as i32 * (TEXT / 2 + 1) + 16;
        area.draw(&Text::new(name, (x + 18, middle), style.clone()))?;
        x += width;
    }
    Ok(())
}

/// Lines over the sizes, with lines across at the ticks.
fn panel<'a>(
    area: &Area<'a>,
    title: &str,
    ticks: &[(f64, String)],
    points: &Points,
) -> Result<(), DrawError<'a>> {
    let text = (FONT, TEXT).into_font().color(&DARK);
    let (low, high) = match ticks {
        [(low, _), .., (high, _)] => (*low, *high),
        _ => (0.0, 1.0),
    };
    let (first, last) = (place(SIZES[0]) - 0.6, place(SIZES[SIZES.len() - 1]) + 0.6);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_top(24)
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(first..last, low..high)?;
    let beside = text.clone().pos(Pos::new(HPos::Right, VPos::Center));
    for (y, label) in ticks {
        let color = if *y == low { DARK } else { GRID };
        chart.draw_series([PathElement::new([(first, *y), (last, *y)], color)])?;
        let label =
            EmptyElement::at((first, *y)) + Text::new(label.clone(), (-8, 0), beside.clone());
        chart.draw_series([label])?;
    }
    let below = text.clone().pos(Pos::new(HPos::Center, VPos::Top));
    for bytes in SIZES {
        let at = (place(bytes), low);
        let label = EmptyElement::at(at) + Text::new(readable(bytes), (0, 8), below.clone());
        chart.draw_series([label])?;
    }
    let above = text.pos(Pos::new(HPos::Left, VPos::Bottom));
    let title = EmptyElement::at((first, high)) + Text::new(title.to_owned(), (0, -8), above);
    chart.draw_series([title])?;
    // What stands first in the legend is drawn last, above the others.
    for (color, points) in points.iter().rev() {
        let line = PathElement::new(points.clone(), color.stroke_width(2));
        chart.draw_series([line])?;
        let dots = points.iter().map(|&at| Circle::new(at, 3, color.filled()));
        chart.draw_series(dots)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};
    use crate::report::svg::texts;

    #[test]
    fn every_library_and_size_stands_in_the_chart() {
        let svg = chart(&fixture::everything(), 4).unwrap().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("viewBox"));
        let texts = texts(&svg);
        let names = Subject::ALL.map(|subject| match subject.peer() {
            None => format!("nexar on {}", subject.title()),
            Some(_) => subject.title().to_owned(),
        });
        let sizes = SIZES.map(readable);
        let titles = [
            "time",
            "bus bandwidth, GB/s",
            "All-reduce of 4 ranks, by size",
        ];
        let titles = titles.map(str::to_owned);
        for text in names.iter().chain(&sizes).chain(&titles) {
            assert!(texts.contains(text), "{text} in {texts:?}");
        }
    }

    #[test]
    fn what_has_not_been_measured_is_left_out() {
        let line = Line::new(Operation::AllReduce, 8, 1 << 20);
        let mut results = Results::default();
        assert_eq!(chart(&results, 8).unwrap(), None);
        results.put(fixture::entry(line, &[(Subject::Gloo, 1e4)]));
        let texts = texts(&chart(&results, 8).unwrap().unwrap());
        assert!(texts.contains(&"Gloo".to_owned()) && texts.contains(&"10 ms".to_owned()));
        assert!(!texts.contains(&"Open MPI".to_owned()));
        assert_eq!(chart(&results, 4).unwrap(), None);
    }

    #[test]
    fn ticks_are_round_and_reach_the_highest() {
        let labels = |highest| -> Vec<String> {
            rate_ticks(highest)
                .into_iter()
                .map(|(_, label)| label)
                .collect()
        };
        assert_eq!(
            labels(2.7),
            ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]
        );
        assert_eq!(labels(0.001), ["0.0", "0.1"]);
        assert!(rate_ticks(1e5).last().unwrap().0 >= 1e5);
        assert_eq!(
            [0, 2, 3, 6].map(power_of_ten),
            ["1 us", "100 us", "1 ms", "1 s"]
        );
    }

    #[test]
    fn the_bandwidth_is_that_of_a_link() {
        assert!((bus_bandwidth(4, 4_000_000, 2000.0) - 3.0).abs() < 1e-12);
        assert!((bus_bandwidth(2, 4_000_000, 2000.0) - 2.0).abs() < 1e-12);
    }
}
