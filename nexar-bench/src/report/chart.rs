//! The rates of large transfers as bars.

use super::{Measurement, ReportError, plan::Group};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::fmt::Display;

const SIZE: (u32, u32) = (900, 420);
pub(crate) const FONT: &str = "sans-serif";
pub(crate) const TITLE: i32 = 20;
pub(crate) const TEXT: i32 = 14;
pub(crate) const DARK: RGBColor = RGBColor(40, 40, 40);
pub(crate) const GRID: RGBColor = RGBColor(210, 210, 210);

pub(crate) const BLUE: RGBColor = RGBColor(38, 110, 168);
pub(crate) const ORANGE: RGBColor = RGBColor(233, 151, 62);

/// One kind of bar.
struct Series {
    group: Group,
    name: &'static str,
    color: RGBColor,
    /// Left and right of the middle of a subject, which are 1 apart.
    place: (f64, f64),
}

const SERIES: [Series; 2] = [
    Series {
        group: Group::OneWay,
        name: "one way",
        color: BLUE,
        place: (-0.36, -0.02),
    },
    Series {
        group: Group::BothWays,
        name: "both ways at the same time, each direction",
        color: ORANGE,
        place: (0.02, 0.36),
    },
];

/// The chart as an SVG: GB/s of the largest transfers that have been measured, one way and both ways,
/// with the confidence intervals. `None` if no transfers have been measured.
///
/// # Errors
///
/// [`ReportError::Chart`].
pub fn chart(results: &[Measurement]) -> Result<Option<String>, ReportError> {
    let Some((case, bars)) = largest(results) else {
        return Ok(None);
    };
    let subjects: Vec<_> = Group::OneWay
        .subjects()
        .into_iter()
        .filter(|subject| bars.iter().any(|m| m.subject == *subject))
        .collect();
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw(&area, &case, &subjects, &bars).map_err(|e| ReportError::Chart(e.to_string()))?;
    drop(area);
    Ok(Some(svg))
}

/// The transfers of the largest size that there is.
fn largest(results: &[Measurement]) -> Option<(String, Vec<&Measurement>)> {
    Group::OneWay.cases().into_iter().rev().find_map(|case| {
        let of_size = |m: &&Measurement| {
            m.case == case && SERIES.iter().any(|series| series.group == m.group)
        };
        let bars: Vec<_> = results.iter().filter(of_size).collect();
        (!bars.is_empty()).then_some((case, bars))
    })
}

fn rate(m: &Measurement, seconds: f64) -> f64 {
    m.rate(seconds) / 1e9
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(
    area: &Area<'a>,
    case: &impl Display,
    subjects: &[String],
    bars: &[&Measurement],
) -> Result<(), DrawError<'a>> {
    area.fill(&WHITE)?;
    let title = (FONT, TITLE).into_font().color(&DARK);
    let area = area.titled(
        &format!("Transfers of {case} between two processes, GB/s"),
        title,
    )?;
    let highest = bars.iter().map(|m| rate(m, m.time.low)).fold(0.0, f64::max);
    // At the top there is room for the legend.
    let (width, height) = (subjects.len() as f64, (highest * 1.25).max(0.1));
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(-0.5..width - 0.5, 0.0..height)?;
    let text = (FONT, TEXT).into_font().color(&DARK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_max_light_lines(1)
        .bold_line_style(GRID)
        .axis_style(DARK)
        .y_desc("GB/s")
        .y_label_style(text.clone())
        .axis_desc_style(text.clone())
        .draw()?;
    for series in &SERIES {
        let rows = bars.iter().filter(|m| m.group == series.group);
        let placed: Vec<_> = rows
            .filter_map(|m| {
                let subject = subjects.iter().position(|name| *name == m.subject)?;
                Some((subject as f64, *m))
            })
            .collect();
        chart
            .draw_series(placed.iter().map(|&(x, m)| {
                let (left, right) = series.place;
                let top = rate(m, m.time.median);
                Rectangle::new([(x + left, 0.0), (x + right, top)], series.color.filled())
            }))?
            .label(series.name)
            .legend(|(x, y)| Rectangle::new([(x, y - 6), (x + 12, y + 6)], series.color.filled()));
        for (x, m) in placed {
            let x = x + (series.place.0 + series.place.1) / 2.0;
            let ends = [rate(m, m.time.high), rate(m, m.time.low)];
            let interval = PathElement::new(ends.map(|y| (x, y)), DARK);
            chart.draw_series([interval])?;
            let above = text.clone().pos(Pos::new(HPos::Center, VPos::Bottom));
            let value = format!("{:.2}", rate(m, m.time.median));
            let label = EmptyElement::at((x, ends[1])) + Text::new(value, (0, -3), above);
            chart.draw_series([label])?;
        }
    }
    let below = text.clone().pos(Pos::new(HPos::Center, VPos::Top));
    for (i, subject) in subjects.iter().enumerate() {
        let label =
            EmptyElement::at((i as f64, 0.0)) + Text::new(subject.clone(), (0, 8), below.clone());
        chart.draw_series([label])?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(GRID)
        .label_font(text)
        .draw()?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Amount, fixture, plan, svg::texts},
        *,
    };

    #[test]
    fn every_subject_stands_in_the_chart() {
        let svg = chart(&fixture::everything()).unwrap().unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("viewBox"));
        let texts = texts(&svg);
        let names = Group::OneWay.subjects();
        let series = SERIES.map(|s| s.name.to_owned());
        for name in names.iter().chain(&series).chain(&["GB/s".to_owned()]) {
            assert!(texts.contains(name), "{name} in {texts:?}");
        }
        assert!(texts.iter().any(|text| text.contains("64 MiB")));
    }

    #[test]
    fn the_largest_size_is_drawn() {
        let transfer = |case, bytes, seconds| {
            fixture::measurement(
                Group::OneWay,
                plan::TCP,
                case,
                Amount::Bytes(bytes),
                seconds,
            )
        };
        let results = [
            transfer("64 KiB", 64 << 10, 1e-4),
            transfer("1 MiB", 1 << 20, 4e-4),
        ];
        let svg = chart(&results).unwrap().unwrap();
        let texts = texts(&svg);
        assert!(texts.contains(&"2.62".to_owned()), "{texts:?}");
        assert!(texts.iter().any(|text| text.contains("1 MiB")));
        assert!(!texts.contains(&"TLS over TCP".to_owned()));
    }

    #[test]
    fn without_transfers_there_is_no_chart() {
        let bytes = Amount::Bytes(8);
        let results = [fixture::measurement(
            Group::RoundTrip,
            plan::TCP,
            "8 B",
            bytes,
            1e-5,
        )];
        assert!(chart(&results).unwrap().is_none());
    }
}
