//! Bars with intervals, and dots between two axes, as SVG that a page carries itself.

use std::fmt::Write;

/// About what a character takes.
const LETTER_WIDTH: f64 = 7.0;
const BAR_WIDTH: f64 = 420.0;
const ROW_HEIGHT: f64 = 26.0;

/// One bar.
pub struct Bar<'a> {
    /// What stands before it.
    pub label: &'a str,
    /// What stands behind it.
    pub text: String,
    /// How long it is.
    pub value: f64,
    /// The interval's ends.
    pub interval: (f64, f64),
    /// Its class, for the colour: `baseline`, `better`, `worse`, `same` or `limit`.
    pub class: &'static str,
}

/// A text as it may stand in HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Room for the longest of some labels, and a gap.
pub fn label_width<'a>(labels: impl Iterator<Item = &'a str>) -> f64 {
    16.0 + LETTER_WIDTH * labels.map(|label| label.chars().count()).max().unwrap_or(0) as f64
}

/// A value that bars may reach.
pub struct Line {
    /// What it is.
    pub label: String,
    /// Where it stands.
    pub value: f64,
}

/// How far beyond the longest bar a line may stand to be drawn.
const LINES_REACH: f64 = 1.5;

/// Horizontal bars from zero on, and lines across them; of a line that is far beyond all bars only the label is there.
pub fn bars(bars: &[Bar<'_>], lines: &[Line]) -> String {
    let longest = bars.iter().map(|bar| bar.value.max(bar.interval.1)).fold(f64::MIN_POSITIVE, f64::max);
    let is_near = |line: &&Line| line.value <= longest * LINES_REACH;
    let most = lines.iter().filter(is_near).map(|line| line.value).fold(longest, f64::max);
    let label_width = label_width(bars.iter().map(|bar| bar.label));
    let x = |value: f64| label_width + BAR_WIDTH * (value / most).clamp(0.0, 1.0);
    let of_bars = ROW_HEIGHT * bars.len() as f64;
    let (width, height) = (label_width + BAR_WIDTH + 110.0, of_bars + 16.0 * lines.len() as f64);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">");
    for (row, bar) in bars.iter().enumerate() {
        let top = ROW_HEIGHT * row as f64;
        let middle = top + ROW_HEIGHT / 2.0;
        let (low, high) = (x(bar.interval.0), x(bar.interval.1));
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{}\" x=\"{label_width}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <path class=\"interval\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            label_width - 8.0,
            middle + 4.0,
            escaped(bar.label),
            bar.class,
            top + 4.0,
            x(bar.value) - label_width,
            ROW_HEIGHT - 8.0,
            middle - 4.0,
            middle - 4.0,
            x(bar.value).max(high) + 6.0,
            middle + 4.0,
            escaped(&bar.text),
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let y = of_bars + 16.0 * (number as f64 + 1.0) - 3.0;
        let (at, drawn) = match is_near(&line) {
            true => (
                x(line.value),
                format!("<path class=\"limit\" d=\"M{0:.1} 0V{of_bars:.1}\"/>", x(line.value)),
            ),
            false => (label_width + BAR_WIDTH, String::new()),
        };
        let beyond = if is_near(&line) { "" } else { " >" };
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "{drawn}<text x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}{beyond}</text>",
            escaped(&line.label)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// One dot.
pub struct Dot<'a> {
    /// What it is.
    pub label: &'a str,
    /// How far to the right.
    pub x: f64,
    /// How far up.
    pub y: f64,
    /// Whether it is told apart.
    pub is_marked: bool,
}

const SQUARE: f64 = 320.0;
const MARGIN: f64 = 40.0;

/// Dots between axes from zero on, with their titles.
pub fn dots_of(dots: &[Dot<'_>], x_title: &str, y_title: &str) -> String {
    let most = |of: fn(&Dot<'_>) -> f64| dots.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (most_x, most_y) = (most(|dot| dot.x), most(|dot| dot.y));
    let label_width = label_width(dots.iter().map(|dot| dot.label));
    let (width, height) = (MARGIN + 1.5 * SQUARE + label_width, 2.0 * MARGIN + SQUARE);
    let bottom = MARGIN + SQUARE;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\
         <path class=\"axis\" d=\"M{MARGIN} {MARGIN}V{bottom}h{:.1}\"/>\
         <text x=\"{MARGIN}\" y=\"{:.1}\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        1.5 * SQUARE,
        MARGIN - 12.0,
        escaped(y_title),
        MARGIN + 1.5 * SQUARE,
        bottom + 20.0,
        escaped(x_title),
    );
    for dot in dots {
        let x = MARGIN + 1.5 * SQUARE * (dot.x / most_x).clamp(0.0, 1.0);
        let y = bottom - SQUARE * (dot.y / most_y).clamp(0.0, 1.0);
        let class = if dot.is_marked { "marked" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 8.0,
            y + 4.0,
            escaped(dot.label),
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_texts_are_harmless() {
        let bar =
            |value| Bar { label: "a<b", text: "&".into(), value, interval: (value, value), class: "same" };
        let svg = bars(&[bar(50.0), bar(100.0)], &[]);
        assert!(svg.contains("width=\"210.0\"") && svg.contains("width=\"420.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains(">&amp;<"), "{svg}");
    }

    #[test]
    fn long_labels_have_room() {
        let label = "layout=mirror 2 + mirror 2 + mirror 2";
        let bar = Bar { label, text: String::new(), value: 1.0, interval: (1.0, 1.0), class: "same" };
        let left = 16.0 + LETTER_WIDTH * label.len() as f64;
        assert!(bars(&[bar], &[]).contains(&format!("<rect class=\"same\" x=\"{left}\"")));
    }

    #[test]
    fn limits_are_lines_where_they_are_near() {
        let bar = Bar { label: "a", text: String::new(), value: 50.0, interval: (50.0, 50.0), class: "same" };
        let line = |label: &str, value| Line { label: label.into(), value };
        let svg = bars(&[bar], &[line("link", 60.0), line("far", 1000.0)]);
        assert_eq!(svg.matches("class=\"limit\"").count(), 1, "{svg}");
        // The longest is the line's then.
        assert!(
            svg.contains("width=\"350.0\"") && svg.contains("far &gt;") || svg.contains("far >"),
            "{svg}"
        );
    }

    #[test]
    fn dots_stand_where_their_values_are() {
        let dot = |x, y, is_marked| Dot { label: "a<b", x, y, is_marked };
        let svg = dots_of(&[dot(1.0, 50.0, false), dot(2.0, 100.0, true)], "space", "IOPS");
        assert!(
            svg.contains("cx=\"280.0\" cy=\"200.0\"") && svg.contains("cx=\"520.0\" cy=\"40.0\""),
            "{svg}"
        );
        assert!(svg.matches("class=\"marked\"").count() == 1 && !svg.contains("a<b"), "{svg}");
    }
}
