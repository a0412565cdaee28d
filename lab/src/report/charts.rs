//! Percentiles beside each other, and figures over time and within runs, as SVG that a page carries itself.

use std::fmt::Write;

use super::plot::{escaped, label_width};

const WIDTH: f64 = 420.0;
const ROW_HEIGHT: f64 = 26.0;
const HEIGHT: f64 = 220.0;
const MARGIN: f64 = 40.0;

/// The percentiles of one variant, the smallest first.
pub struct Percentiles<'a> {
    /// The variant.
    pub label: &'a str,
    /// What stands behind.
    pub text: String,
    /// Its percentiles.
    pub values: Vec<f64>,
}

/// Percentiles on a logarithmic axis that all share: a dot for each, with a line from the first to the last.
pub fn percentiles(rows: &[Percentiles<'_>]) -> String {
    let all = || rows.iter().flat_map(|row| &row.values).copied().filter(|value| *value > 0.0);
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN_POSITIVE, f64::max));
    let left = label_width(rows.iter().map(|row| row.label));
    let span = (most / least.min(most)).ln().max(1e-9);
    let x = |value: f64| left + WIDTH * ((value / least).ln() / span).clamp(0.0, 1.0);
    let text_width = label_width(rows.iter().map(|row| row.text.as_str()));
    let (width, height) = (left + WIDTH + 14.0 + text_width, ROW_HEIGHT * rows.len() as f64);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">");
    for (number, row) in rows.iter().enumerate() {
        let y = ROW_HEIGHT * (number as f64 + 0.5);
        let at: Vec<f64> = row.values.iter().map(|value| x(*value)).collect();
        let (Some(first), Some(last)) = (at.first(), at.last()) else { continue };
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><path class=\"axis\" d=\"M{first:.1} {y:.1}H{last:.1}\"/>",
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

/// A line for each variant, from zero on, over time. What the ends of the axes are, their texts say.
pub fn courses(courses: &[Course<'_>], most: f64, most_text: &str, last_text: &str) -> String {
    let all = || courses.iter().flat_map(|course| &course.points);
    let last = all().map(|(at, _)| *at).fold(f64::MIN_POSITIVE, f64::max);
    let most = most.max(f64::MIN_POSITIVE);
    let place = |(at, value): &(f64, f64)| {
        (
            MARGIN + WIDTH * (at / last).clamp(0.0, 1.0),
            MARGIN + HEIGHT * (1.0 - (value / most).clamp(0.0, 1.0)),
        )
    };
    let labels = label_width(courses.iter().map(|course| course.label));
    let rows = ROW_HEIGHT * courses.len() as f64;
    let (width, height) = (MARGIN + WIDTH + 40.0 + labels, (HEIGHT + 2.0 * MARGIN).max(rows + MARGIN));
    let bottom = MARGIN + HEIGHT;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\"><path class=\"axis\" d=\"M{MARGIN} {MARGIN}V{bottom}h{WIDTH}\"/>\
         <text x=\"{MARGIN}\" y=\"{:.1}\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        MARGIN - 12.0,
        escaped(most_text),
        MARGIN + WIDTH,
        bottom + 20.0,
        escaped(last_text),
    );
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
             <path d=\"M{:.1} {label_y:.1}h16\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            points(&mut course.points.iter().copied()),
            MARGIN + WIDTH + 14.0,
            MARGIN + WIDTH + 36.0,
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
        let svg = percentiles(&[row("a", [1.0, 10.0, 100.0]), row("b", [10.0, 10.0, 10.0])]);
        let left = label_width(["a"].into_iter());
        let middle = format!("cx=\"{:.1}\"", left + WIDTH / 2.0);
        assert_eq!(svg.matches(&middle).count(), 4, "{svg}");
        assert!(svg.contains("&amp;") && svg.matches("class=\"marked\"").count() == 2);
        percentiles(&[row("none", [0.0, 0.0, 0.0])]);
        percentiles(&[]);
    }

    #[test]
    fn a_course_goes_from_the_first_run_to_the_last() {
        let course = Course { label: "a<b", points: vec![(0.0, 50.0), (10.0, 100.0)], band: Vec::new() };
        let svg = courses(&[course], 100.0, "100", "10 s");
        assert!(!svg.contains("<polygon") && svg.contains(">10 s<"), "{svg}");
        assert!(svg.contains("points=\"40.0,150.0 460.0,40.0\"") && !svg.contains("a<b"), "{svg}");
        courses(&[], 0.0, "", "");
    }

    #[test]
    fn a_band_goes_there_below_and_back_above() {
        let band = vec![(25.0, 75.0), (100.0, 100.0)];
        let course = Course { label: "a", points: vec![(0.0, 50.0), (10.0, 100.0)], band };
        let svg = courses(&[course], 100.0, "", "");
        assert!(svg.contains("<polygon points=\"40.0,205.0 460.0,40.0 460.0,40.0 40.0,95.0\""), "{svg}");
    }
}
