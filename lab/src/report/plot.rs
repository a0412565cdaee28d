//! Bars with intervals, and dots between two axes, as SVG that a page carries itself.

use std::fmt::Write;

/// What a character takes at most, in the wider of the fonts that pages are shown in.
const LETTER_WIDTH: f64 = 8.0;
const BAR_WIDTH: f64 = 420.0;
const ROW_HEIGHT: f64 = 26.0;

/// One bar.
pub struct Bar<'a> {
    /// The text before it.
    pub label: &'a str,
    /// The text behind it.
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
    /// Its kind.
    pub label: String,
    /// Where it stands.
    pub value: f64,
}

/// How far beyond the longest bar a line may stand to be drawn.
const LINES_REACH: f64 = 1.5;

/// How far beyond the longest bar an interval is drawn: one that is wider would leave no room for the bars.
const INTERVALS_REACH: f64 = 1.25;

/// Horizontal bars from zero on, with intervals (those that go too far end in an arrow), and lines across
/// them; of a line that is far beyond all bars only the label is there.
pub fn bars(bars: &[Bar<'_>], lines: &[Line]) -> String {
    let most_of = |of: &dyn Fn(&Bar<'_>) -> f64| bars.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let reach = most_of(&|bar| bar.value) * INTERVALS_REACH;
    let longest = most_of(&|bar| bar.value.max(bar.interval.1.min(reach)));
    let is_near = |line: &&Line| line.value <= longest * LINES_REACH;
    let most = lines.iter().filter(is_near).map(|line| line.value).fold(longest, f64::max);
    let label_width = label_width(bars.iter().map(|bar| bar.label));
    let x = |value: f64| label_width + BAR_WIDTH * (value / most).clamp(0.0, 1.0);
    let of_bars = ROW_HEIGHT * bars.len() as f64;
    let (width, height) = (label_width + BAR_WIDTH + 110.0, of_bars + 16.0 * lines.len() as f64);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">");
    // Words come last, over lines that cross them.
    let mut words = String::new();
    for (row, bar) in bars.iter().enumerate() {
        let top = ROW_HEIGHT * row as f64;
        let middle = top + ROW_HEIGHT / 2.0;
        let (low, high) = (x(bar.interval.0), x(bar.interval.1.min(reach)));
        let end = match bar.interval.1 > reach {
            true => format!(
                "<path class=\"interval beyond\" d=\"M{:.1} {:.1}l6 4l-6 4\"/>",
                high - 6.0,
                middle - 4.0
            ),
            false => format!("<path class=\"interval\" d=\"M{high:.1} {:.1}v8\"/>", middle - 4.0),
        };
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<rect class=\"{}\" x=\"{label_width}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <path class=\"interval\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8\"/>{end}",
            bar.class,
            top + 4.0,
            x(bar.value) - label_width,
            ROW_HEIGHT - 8.0,
            middle - 4.0,
        );
        let _ = write!(
            words,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text><text x=\"{:.1}\" \
             y=\"{y:.1}\">{}</text>",
            label_width - 8.0,
            escaped(bar.label),
            x(bar.value).max(high) + 6.0,
            escaped(&bar.text),
            y = middle + 4.0,
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
    svg.push_str(&words);
    svg.push_str("</svg>");
    svg
}

/// One dot.
pub struct Dot<'a> {
    /// Its kind.
    pub label: &'a str,
    /// How far to the right.
    pub x: f64,
    /// How far up.
    pub y: f64,
    /// Whether it is marked.
    pub is_marked: bool,
}

const SQUARE: f64 = 320.0;
const MARGIN: f64 = 40.0;
/// About the height of a line of text.
const LINE_HEIGHT: f64 = 14.0;
/// Radius of a dot, and how far its name is from its middle.
const RADIUS: f64 = 5.0;
const GAP: f64 = 8.0;

/// An axis from zero on: what is on it, and how a value of that is written.
pub struct Axis<'a> {
    /// Its kind.
    pub title: &'a str,
    /// A value with its unit.
    pub write: &'a dyn Fn(f64) -> String,
    /// The unit that round values are round in.
    pub unit: f64,
}

impl Axis<'_> {
    fn ticks(&self, most: f64) -> Vec<f64> {
        ticks(most / self.unit).into_iter().map(|tick| tick * self.unit).collect()
    }
}

/// Round values from zero on that divide an axis up to `most` into three to six parts.
pub fn ticks(most: f64) -> Vec<f64> {
    if !(most.is_finite() && most > 0.0) {
        return Vec::new();
    }
    let magnitude = 10_f64.powf((most / 3.0).log10().floor());
    let step = [5.0, 2.0, 1.0].map(|times| times * magnitude).into_iter().find(|step| most / step >= 3.0);
    let step = step.unwrap_or(magnitude);
    (0..=(most / step * (1.0 + 1e-9)) as usize).map(|at| at as f64 * step).collect()
}

/// Room for what stands beside an axis.
pub fn ticks_width(axis: &Axis<'_>, most: f64) -> f64 {
    let texts: Vec<String> = axis.ticks(most).into_iter().map(|tick| (axis.write)(tick)).collect();
    label_width(texts.iter().map(String::as_str))
}

/// Dots between axes from zero on.
pub fn dots_of(dots: &[Dot<'_>], x_axis: &Axis<'_>, y_axis: &Axis<'_>) -> String {
    let most = |of: fn(&Dot<'_>) -> f64| dots.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (most_x, most_y) = (most(|dot| dot.x), most(|dot| dot.y));
    let labels = label_width(dots.iter().map(|dot| dot.label));
    let left = ticks_width(y_axis, most_y);
    let (across, bottom) = (1.5 * SQUARE, MARGIN + SQUARE);
    let (width, height) = (left + across + labels, bottom + MARGIN + LINE_HEIGHT);
    let x = |value: f64| left + across * (value / most_x).clamp(0.0, 1.0);
    let y = |value: f64| bottom - SQUARE * (value / most_y).clamp(0.0, 1.0);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\
         <path class=\"axis\" d=\"M{left} {MARGIN}V{bottom}h{across}\"/>\
         <text x=\"{left}\" y=\"{:.1}\">{}</text><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        MARGIN - 12.0,
        escaped(y_axis.title),
        left + across,
        bottom + 20.0 + LINE_HEIGHT,
        escaped(x_axis.title),
    );
    // Writing to a string does not fail.
    for tick in x_axis.ticks(most_x) {
        let (at, text) = (x(tick), escaped(&(x_axis.write)(tick)));
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {MARGIN}V{bottom}\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{text}</text>",
            bottom + 18.0
        );
    }
    svg.push_str(&marks_beside(y_axis, most_y, left, across, y));
    // Left and right ends, and the middle, of what is there already.
    let of_dot = |dot: &Dot<'_>| (x(dot.x) - RADIUS, x(dot.x) + RADIUS, y(dot.y));
    let mut texts: Vec<(f64, f64, f64)> = dots.iter().map(of_dot).collect();
    for dot in dots {
        let (x, y) = (x(dot.x), y(dot.y));
        let class = if dot.is_marked { "marked" } else { "" };
        // A name stands beside its dot, on the right or else on the left. Where others are in the way it
        // stands above or below, with a line to the dot.
        let text_width = LETTER_WIDTH * dot.label.chars().count() as f64;
        let sides = [(x + GAP, x + GAP + text_width), (x - GAP - text_width, x - GAP)];
        let sides = sides.into_iter().filter(|(from, _)| *from >= left);
        let is_free = |left: f64, right: f64, height: f64| {
            let meets = |(from, to, at): &(f64, f64, f64)| {
                *from < right && left < *to && (at - height).abs() < LINE_HEIGHT
            };
            !texts.iter().any(meets)
        };
        let places = (0..2 * dots.len()).flat_map(|line| {
            let away = LINE_HEIGHT * line.div_ceil(2) as f64;
            let height = if line % 2 == 0 { y - away } else { y + away };
            sides.clone().map(move |(from, to)| (from, to, height))
        });
        let place = places.into_iter().find(|(from, to, height)| is_free(*from, *to, *height));
        let (from, to, height) = place.unwrap_or((x + GAP, x + GAP + text_width, y));
        texts.push((from, to, height));
        let (at, anchor) = if from < x { (to, " text-anchor=\"end\"") } else { (from, "") };
        if height != y {
            let _ = write!(svg, "<path class=\"axis\" d=\"M{x:.1} {y:.1}L{at:.1} {height:.1}\"/>");
        }
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\"/><text x=\"{at:.1}\" \
             y=\"{:.1}\"{anchor}>{}</text>",
            height + 4.0,
            escaped(dot.label),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The ticks of an axis that goes up, with lines across: it stands at `left`, and `place` says where a value
/// is.
pub fn marks_beside(
    axis: &Axis<'_>,
    most: f64,
    left: f64,
    across: f64,
    place: impl Fn(f64) -> f64,
) -> String {
    let mut svg = String::new();
    for tick in axis.ticks(most) {
        let (at, text) = (place(tick), escaped(&(axis.write)(tick)));
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{left} {at:.1}h{across}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{text}</text>",
            left - 6.0,
            at + 4.0
        );
    }
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
    fn one_wide_interval_does_not_squeeze_all_bars() {
        let bar = |value: f64, high| Bar {
            label: "a",
            text: String::new(),
            value,
            interval: (value, high),
            class: "same",
        };
        let svg = bars(&[bar(100.0, 100.0), bar(50.0, 5000.0)], &[]);
        assert!(svg.contains("width=\"336.0\"") && svg.contains("width=\"168.0\""), "{svg}");
        assert_eq!(svg.matches("interval beyond").count(), 1, "{svg}");
        assert!(!bars(&[bar(100.0, 120.0)], &[]).contains("beyond"));
    }

    #[test]
    fn long_labels_have_room() {
        let label = "layout=mirror 2 + mirror 2 + mirror 2";
        let bar = Bar { label, text: String::new(), value: 1.0, interval: (1.0, 1.0), class: "same" };
        // 13 px of DejaVu Sans, a wide one: 7.9 px a character of such a label.
        let widest = 7.9 * label.len() as f64;
        assert!(label_width([label].into_iter()) >= widest + 8.0);
        let left = label_width([label].into_iter());
        assert!(bars(&[bar], &[]).contains(&format!("<rect class=\"same\" x=\"{left}\"")));
    }

    #[test]
    fn words_stand_over_the_lines_that_cross_them() {
        let bar =
            Bar { label: "a", text: "words".into(), value: 50.0, interval: (50.0, 50.0), class: "same" };
        let svg = bars(&[bar], &[Line { label: "link".into(), value: 55.0 }]);
        assert!(svg.find("class=\"limit\"").unwrap() < svg.find(">words<").unwrap(), "{svg}");
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
        let dot = |label, x, y, is_marked| Dot { label, x, y, is_marked };
        let write = |value: f64| format!("{value} u");
        let axes = ["space", "IOPS"].map(|title| Axis { title, write: &write, unit: 1.0 });
        let svg = dots_of(&[dot("a<b", 1.0, 50.0, false), dot("c", 2.0, 100.0, true)], &axes[0], &axes[1]);
        let left = 16.0 + LETTER_WIDTH * 5.0;
        assert!(svg.contains(&format!("cx=\"{:.1}\" cy=\"200.0\"", left + 240.0)), "{svg}");
        assert!(svg.contains(&format!("cx=\"{:.1}\" cy=\"40.0\"", left + 480.0)), "{svg}");
        assert!(svg.matches("class=\"marked\"").count() == 1 && !svg.contains("a<b"), "{svg}");
        assert!(svg.contains(">0.5 u<") && svg.contains(">60 u<"), "{svg}");
        // Names of dots in one place stand on both sides, then below with a line to their dot.
        let same = ["a", "b", "c"].map(|label| dot(label, 1.0, 1.0, false));
        let svg = dots_of(&same, &axes[0], &axes[1]);
        assert!(svg.contains("y=\"44.0\">a<") && svg.contains("y=\"44.0\" text-anchor=\"end\">b<"), "{svg}");
        assert!(svg.contains("y=\"58.0\">c<") && svg.matches("class=\"axis\" d=\"M").count() == 2, "{svg}");
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.35), [0.0, 0.1, 0.2, 0.30000000000000004]);
        assert_eq!(ticks(17.0), [0.0, 5.0, 10.0, 15.0]);
        assert!(ticks(0.0).is_empty() && ticks(f64::NAN).is_empty());
        for most in [1.0, 2.9, 3.1, 7.0, 999.0, 1e9] {
            assert!((4..=7).contains(&ticks(most).len()), "{most}: {:?}", ticks(most));
        }
    }
}
