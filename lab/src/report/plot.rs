//! Bars with intervals, as SVG that a page carries itself.

use std::fmt::Write;

const LABEL_WIDTH: f64 = 220.0;
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

/// Horizontal bars from zero on.
pub fn bars(bars: &[Bar<'_>]) -> String {
    let most = bars.iter().map(|bar| bar.value.max(bar.interval.1)).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LABEL_WIDTH + BAR_WIDTH * (value / most).clamp(0.0, 1.0);
    let (width, height) = (LABEL_WIDTH + BAR_WIDTH + 110.0, ROW_HEIGHT * bars.len() as f64);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">");
    for (row, bar) in bars.iter().enumerate() {
        let top = ROW_HEIGHT * row as f64;
        let middle = top + ROW_HEIGHT / 2.0;
        let (low, high) = (x(bar.interval.0), x(bar.interval.1));
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{}\" x=\"{LABEL_WIDTH}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <path class=\"interval\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LABEL_WIDTH - 8.0,
            middle + 4.0,
            escaped(bar.label),
            bar.class,
            top + 4.0,
            x(bar.value) - LABEL_WIDTH,
            ROW_HEIGHT - 8.0,
            middle - 4.0,
            middle - 4.0,
            x(bar.value).max(high) + 6.0,
            middle + 4.0,
            escaped(&bar.text),
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
        let svg = bars(&[bar(50.0), bar(100.0)]);
        assert!(svg.contains("width=\"210.0\"") && svg.contains("width=\"420.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains(">&amp;<"), "{svg}");
    }
}
