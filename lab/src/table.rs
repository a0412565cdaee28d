//! Rows of words in columns, as terminals and Markdown show them: the first column to the left, the others, mostly figures, to the right.

/// The width of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// A row's cells, as wide as their columns.
fn padded<'a>(row: &'a [String], widths: &'a [usize]) -> impl Iterator<Item = String> + 'a {
    row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
        0 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    })
}

/// Rows under their headings, for terminals.
pub(crate) fn plain(headings: &[&str], rows: &[Vec<String>]) -> String {
    let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows.iter().cloned()).collect();
    let widths = widths(&rows);
    let line =
        |row: &Vec<String>| format!("{}\n", padded(row, &widths).collect::<Vec<_>>().join("  ").trim_end());
    rows.iter().map(line).collect()
}

/// Rows under the first of them, as Markdown.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        text.push_str(&format!("| {} |\n", padded(row, &widths).collect::<Vec<_>>().join(" | ")));
        if number == 0 {
            let rule = |(column, width): (usize, &usize)| match column {
                0 => format!("{}-", "-".repeat(*width)),
                _ => format!("{}:", "-".repeat(*width)),
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
    }
}
