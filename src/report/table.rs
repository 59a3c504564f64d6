//! Text tables: columns are as wide as their widest cell; text is left-aligned, numbers are right-aligned.

use std::fmt::Write;

/// The rows, of which the first is the header, and for each column whether it holds text.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    text: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns; true for text, which is left-aligned.
    pub(super) fn new(columns: &[(&str, bool)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { text: columns.iter().map(|(_, text)| *text).collect(), rows: vec![head] }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Returns the rows as lines that begin with two spaces and have no trailing spaces.
    pub(super) fn lines(&self) -> String {
        let wide = |i: usize| self.rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.text.len()).map(wide).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &text) in row.iter().zip(&widths).zip(&self.text) {
                // Writing to a string cannot fail.
                let _ =
                    if text { write!(line, "  {cell:<width$}") } else { write!(line, "  {cell:>width$}") };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("layer", true), ("bytes", false)]);
        table.row(["fc".into(), "1.0 MiB".into()]);
        table.row(["äöü–é…x".into(), "7 B".into()]);
        assert_eq!(table.lines(), "  layer      bytes\n  fc       1.0 MiB\n  äöü–é…x      7 B\n");
    }
}
