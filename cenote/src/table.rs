//! Tables as OpenZFS's tools print them.
//!
//! Columns stand two spaces apart, each as wide as its heading, its minimum, and where it may grow its widest
//! value. The last column is not padded unless it is aligned to the right. In scripted form (`-H`) there is
//! no heading and one tab between the values. Widths count bytes, as `printf` does.

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub title: String,
    /// Its width so far, in bytes.
    pub width: usize,
    /// Whether values are aligned to the right.
    pub right: bool,
}

impl Column {
    /// A column aligned to the left, as wide as its heading.
    pub fn left(title: &str) -> Self {
        Self { title: title.to_owned(), width: title.len(), right: false }
    }

    /// Makes room for a value.
    pub fn grow(&mut self, value: &str) {
        self.width = self.width.max(value.len());
    }
}

/// The columns of a table, and how it is printed.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The columns, from the left.
    pub columns: Vec<Column>,
    /// No headings, tabs between the values.
    pub scripted: bool,
}

impl Layout {
    /// The line of headings; nothing in scripted form.
    pub fn header(&self) -> String {
        if self.scripted {
            return String::new();
        }
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title.as_str()).collect();
        self.row(&titles)
    }

    /// A line of values.
    pub fn row<T: AsRef<str>>(&self, values: &[T]) -> String {
        let mut line = String::new();
        let last = self.columns.len().saturating_sub(1);
        for (index, (column, value)) in self.columns.iter().zip(values).enumerate() {
            if index > 0 {
                line.push_str(if self.scripted { "\t" } else { "  " });
            }
            let value = value.as_ref();
            if self.scripted || (index == last && !column.right) {
                line.push_str(value);
            } else if column.right {
                line.push_str(&pad_left(value, column.width));
            } else {
                line.push_str(&pad_right(value, column.width));
            }
        }
        line.push('\n');
        line
    }
}

/// `text` with spaces behind it, up to `width` bytes.
pub fn pad_right(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.len())))
}

/// `text` with spaces in front of it, up to `width` bytes.
pub fn pad_left(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(scripted: bool) -> Layout {
        let size = Column { title: "SIZE".into(), width: 5, right: true };
        Layout { columns: vec![Column::left("NAME"), size, Column::left("WHERE")], scripted }
    }

    #[test]
    fn the_last_column_is_not_padded() {
        assert_eq!(layout(false).header(), "NAME   SIZE  WHERE\n");
        assert_eq!(layout(false).row(&["a", "2K", "x"]), "a        2K  x\n");
    }

    #[test]
    fn a_scripted_table_has_tabs_and_no_headings() {
        assert_eq!(layout(true).header(), "");
        assert_eq!(layout(true).row(&["a", "2K", "x"]), "a\t2K\tx\n");
    }
}
