//! Text tables for terminals, Markdown and pages: the first column is left-aligned, the others, mostly
//! figures, right-aligned; in Markdown and pages, columns of words are left-aligned too.

/// The width of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// A row's cells, as wide as their columns, those of words to the left.
fn padded<'a>(
    row: &'a [String],
    widths: &'a [usize],
    are_words: &'a dyn Fn(usize) -> bool,
) -> impl Iterator<Item = String> + 'a {
    row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match are_words(column) {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    })
}

/// Letters for each digit from which on a cell is rather words than a figure with its unit: `4K random read`,
/// and not `4.00 ms to 5.00 ms`.
const LETTERS_OF_WORDS: usize = 4;

/// Of each column of rows under their headings, whether it has words rather than figures; the first always
/// has.
pub(crate) fn are_words(rows: &[Vec<String>]) -> Vec<bool> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let has_words = |column: usize| {
        let characters =
            || rows.iter().skip(1).filter_map(|row| row.get(column)).flat_map(|cell| cell.chars());
        let letters = characters().filter(|it| it.is_alphabetic()).count();
        letters > 0 && letters >= LETTERS_OF_WORDS * characters().filter(char::is_ascii_digit).count()
    };
    (0..columns).map(|column| column == 0 || has_words(column)).collect()
}

/// Rows under their headings, for terminals.
pub(crate) fn plain(headings: &[&str], rows: &[Vec<String>]) -> String {
    let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows.iter().cloned()).collect();
    let widths = widths(&rows);
    let line = |row: &Vec<String>| {
        format!("{}\n", padded(row, &widths, &|column| column == 0).collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Rows under the first of them, as Markdown.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let (widths, words) = (widths(rows), are_words(rows));
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        text.push_str(&format!(
            "| {} |\n",
            padded(row, &widths, &|column| words[column]).collect::<Vec<_>>().join(" | ")
        ));
        if number == 0 {
            let rule = |(column, width): (usize, &usize)| match words[column] {
                true => format!("{}-", "-".repeat(*width)),
                false => format!("{}:", "-".repeat(*width)),
            };
            let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
            text.push_str(&format!("| {}|\n", rules.join("| ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(words: &[[&str; 2]]) -> Vec<Vec<String>> {
        words.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_word() {
        let body = rows(&[["a", "1"], ["bb", "22"]]);
        assert_eq!(plain(&["x", "y"], &body), "x    y\na    1\nbb  22\n");
        assert_eq!(
            markdown(&rows(&[["x", "y"], ["a", "1"], ["bb", "22"]])),
            "| x  |  y |\n| ---| --:|\n| a  |  1 |\n| bb | 22 |\n"
        );
        let of = |cells: [&str; 3]| {
            are_words(&rows(&[["x", "y"], ["a", cells[0]], ["b", cells[1]], ["c", cells[2]]]))[1]
        };
        assert!(of(["4K random read", "16K write", "-"]) && of(["better", "", "undecided, ~12 rounds"]));
        assert!(!of(["1.00 ms to 2.50 ms", "433 MiB/s", "-"]) && !of(["-", "", "-"]));
        assert_eq!(
            markdown(&rows(&[["x", "y"], ["a", "one"], ["bb", ""]])),
            "| x  | y   |\n| ---| ----|\n| a  | one |\n| bb |     |\n"
        );
    }
}
