//! Text tables: columns as wide as their widest cell, text to the left, numbers to the right.

use std::fmt::Write;

/// Rows under a head. A column is text where its name says so.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    text: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; true for text, which stands to the left.
    pub(super) fn new(columns: &[(&str, bool)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { text: columns.iter().map(|(_, text)| *text).collect(), rows: vec![head] }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Lines that begin with two blanks and end without any.
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
