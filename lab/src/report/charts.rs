//! Percentiles beside each other, and figures over time and within runs, as SVG that a page carries itself.

use std::fmt::Write;

use super::plot::{Axis, escaped, label_width, marks_beside, ticks, ticks_width};

const WIDTH: f64 = 420.0;
const ROW_HEIGHT: f64 = 26.0;
const HEIGHT: f64 = 220.0;
const MARGIN: f64 = 40.0;

/// Decades of a logarithmic axis that are marked.
const MOST_DECADES: usize = 12;

/// The percentiles of one variant, the smallest first.
pub struct Percentiles<'a> {
    /// The variant.
    pub label: &'a str,
    /// The text behind.
    pub text: String,
    /// Its percentiles.
    pub values: Vec<f64>,
}

/// Percentiles on a logarithmic axis that all share: a dot for each, with a line from the first to the last.
pub fn percentiles(rows: &[Percentiles<'_>], write: &dyn Fn(f64) -> String) -> String {
    let all = || rows.iter().flat_map(|row| &row.values).copied().filter(|value| *value > 0.0);
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN_POSITIVE, f64::max));
    let left = label_width(rows.iter().map(|row| row.label));
    let span = (most / least.min(most)).ln().max(1e-9);
    let x = |value: f64| left + WIDTH * ((value / least).ln() / span).clamp(0.0, 1.0);
    let text_width = label_width(rows.iter().map(|row| row.text.as_str()));
    let (width, height) = (left + WIDTH + 14.0 + text_width, ROW_HEIGHT * rows.len() as f64 + 20.0);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">");
    let below = ROW_HEIGHT * rows.len() as f64;
    let decades = (least.log10().ceil() as i32..=most.log10().floor() as i32).map(|power| 10_f64.powi(power));
    for tick in decades.filter(|_| rows.iter().any(|row| !row.values.is_empty())).take(MOST_DECADES) {
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{0:.1} 0V{below:.1}\"/><text x=\"{0:.1}\" y=\"{1:.1}\" \
             text-anchor=\"middle\">{2}</text>",
            x(tick),
            below + 14.0,
            escaped(&write(tick))
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let y = ROW_HEIGHT * (number as f64 + 0.5);
        let at: Vec<f64> = row.values.iter().map(|value| x(*value)).collect();
        let (Some(first), Some(last)) = (at.first(), at.last()) else { continue };
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><path class=\"axis\" d=\"M{first:.1} \
             {y:.1}H{last:.1}\"/>",
            left - 8.0,
            y + 4.0,
            escaped(row.label)
        );
        for (index, at) in at.iter().enumerate() {
            let class = if index == 0 { "marked" } else { "" };
            let _ = write!(svg, "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + WIDTH + 14.0,
            y + 4.0,
            escaped(&row.text)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The figures of one variant over time.
pub struct Course<'a> {
    /// The variant.
    pub label: &'a str,
    /// Seconds, and the figure.
    pub points: Vec<(f64, f64)>,
    /// Between what the figures of most rounds are, at each of the points; empty where that is not drawn.
    pub band: Vec<(f64, f64)>,
}

/// A line for each variant, from zero on, over time.
pub fn courses(courses: &[Course<'_>], axis: &Axis<'_>, most: f64, time_title: &str) -> String {
    let all = || courses.iter().flat_map(|course| &course.points);
    let last = all().map(|(at, _)| *at).fold(f64::MIN_POSITIVE, f64::max);
    let most = most.max(f64::MIN_POSITIVE);
    let left = ticks_width(axis, most);
    let (across, up) = (
        |at: f64| left + WIDTH * (at / last).clamp(0.0, 1.0),
        |value: f64| MARGIN + HEIGHT * (1.0 - (value / most).clamp(0.0, 1.0)),
    );
    let place = |(at, value): &(f64, f64)| (across(*at), up(*value));
    let labels = label_width(courses.iter().map(|course| course.label));
    let rows = ROW_HEIGHT * courses.len() as f64;
    let (width, height) = (left + WIDTH + 40.0 + labels, (HEIGHT + 2.0 * MARGIN + 14.0).max(rows + MARGIN));
    let bottom = MARGIN + HEIGHT;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\"><path class=\"axis\" \
         d=\"M{left} {MARGIN}V{bottom}h{WIDTH}\"/>\
         <text x=\"{left}\" y=\"{:.1}\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        MARGIN - 12.0,
        escaped(axis.title),
        left + WIDTH,
        bottom + 34.0,
        escaped(time_title),
    );
    svg.push_str(&marks_beside(axis, most, left, WIDTH, up));
    for tick in ticks(last) {
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            across(tick),
            bottom + 18.0,
            (tick * 1000.0).round() / 1000.0
        );
    }
    for (number, course) in courses.iter().enumerate() {
        let colour = format!("hsl({:.0},55%,50%)", 360.0 * number as f64 / courses.len() as f64);
        let points = |points: &mut dyn Iterator<Item = (f64, f64)>| -> String {
            let places = points.map(|point| place(&point)).map(|(x, y)| format!("{x:.1},{y:.1}"));
            places.collect::<Vec<_>>().join(" ")
        };
        let band = || course.points.iter().zip(&course.band);
        let lower = band().map(|((at, _), (low, _))| (*at, *low));
        let upper = band().rev().map(|((at, _), (_, high))| (*at, *high));
        if !course.band.is_empty() {
            let around = points(&mut lower.chain(upper));
            let _ = write!(svg, "<polygon points=\"{around}\" fill=\"{colour}\" fill-opacity=\"0.15\"/>");
        }
        let label_y = MARGIN + ROW_HEIGHT * number as f64;
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <path d=\"M{:.1} {label_y:.1}h16\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>",
            points(&mut course.points.iter().copied()),
            left + WIDTH + 14.0,
            left + WIDTH + 36.0,
            label_y + 4.0,
            escaped(course.label)
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_stand_on_one_logarithmic_axis() {
        let row = |label, values: [f64; 3]| Percentiles { label, text: "&".into(), values: values.to_vec() };
        let write = |value: f64| format!("{value} u");
        let svg = percentiles(&[row("a", [1.0, 10.0, 100.0]), row("b", [10.0, 10.0, 10.0])], &write);
        assert!([">1 u<", ">10 u<", ">100 u<"].iter().all(|tick| svg.contains(tick)), "{svg}");
        let left = label_width(["a"].into_iter());
        let middle = format!("cx=\"{:.1}\"", left + WIDTH / 2.0);
        assert_eq!(svg.matches(&middle).count(), 4, "{svg}");
        assert!(svg.contains("&amp;") && svg.matches("class=\"marked\"").count() == 2);
        percentiles(&[row("none", [0.0, 0.0, 0.0])], &write);
        percentiles(&[], &write);
    }

    fn shown(all: &[Course<'_>], most: f64) -> String {
        let write = |value: f64| format!("{value:.0}");
        courses(all, &Axis { title: "IOPS", write: &write, unit: 1.0 }, most, "since the first run")
    }

    #[test]
    fn a_course_goes_from_the_first_run_to_the_last() {
        let course = Course { label: "a<b", points: vec![(0.0, 50.0), (10.0, 100.0)], band: Vec::new() };
        let svg = shown(&[course], 100.0);
        assert!(!svg.contains("<polygon") && svg.contains(">10 s<") && svg.contains(">100<"), "{svg}");
        // Room for three digits.
        assert!(svg.contains("points=\"40.0,150.0 460.0,40.0\"") && !svg.contains("a<b"), "{svg}");
        shown(&[], 0.0);
    }

    #[test]
    fn a_band_goes_there_below_and_back_above() {
        let band = vec![(25.0, 75.0), (100.0, 100.0)];
        let course = Course { label: "a", points: vec![(0.0, 50.0), (10.0, 100.0)], band };
        let svg = shown(&[course], 100.0);
        assert!(svg.contains("<polygon points=\"40.0,205.0 460.0,40.0 460.0,40.0 40.0,95.0\""), "{svg}");
    }
}
