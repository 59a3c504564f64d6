//! A data set in memory, and a reader for comma-separated text.

use std::ops::Range;

use super::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::random;

/// Samples and classes in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    sample_len: usize,
    classes: usize,
    samples: Vec<f32>,
    labels: Vec<u32>,
}

impl Table {
    /// Creates a table of `labels.len()` samples.
    ///
    /// # Errors
    /// [`Error::Data`] if the lengths do not agree or a label is not below `classes`.
    pub fn new(sample_len: usize, classes: usize, samples: Vec<f32>, labels: Vec<u32>) -> Result<Self> {
        let wrong = |message: String| Err(Error::Data { what: "table".to_owned(), message });
        if samples.len() != labels.len() * sample_len {
            let (numbers, rows) = (samples.len(), labels.len());
            return wrong(format!("{numbers} numbers are not {rows} samples of {sample_len}"));
        }
        if let Some(row) = labels.iter().position(|&label| label as usize >= classes) {
            return wrong(format!("sample {row} has class {}, there are {classes}", labels[row]));
        }
        Ok(Self { sample_len, classes, samples, labels })
    }

    /// Reads lines of comma-separated numbers, the class last. Empty lines are skipped. `what` names the data
    /// in errors.
    ///
    /// # Errors
    /// [`Error::Data`] with the line of the first number that is missing, damaged or out of range; or if
    /// there are no lines.
    pub fn from_csv(what: &str, text: &str, sample_len: usize, classes: usize) -> Result<Self> {
        let wrong = |message: String| Error::Data { what: what.to_owned(), message };
        let (mut samples, mut labels) = (Vec::new(), Vec::new());
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let number = i + 1;
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            if fields.len() != sample_len + 1 {
                let (found, needed) = (fields.len(), sample_len + 1);
                return Err(wrong(format!("line {number} has {found} fields, {needed} are needed")));
            }
            for (column, field) in fields[..sample_len].iter().enumerate() {
                match field.parse::<f32>() {
                    Ok(value) if value.is_finite() => samples.push(value),
                    _ => {
                        let column = column + 1;
                        return Err(wrong(format!(
                            "line {number}, field {column}: `{field}` is not a number"
                        )));
                    }
                }
            }
            let field = fields[sample_len];
            // Some writers print classes as floats.
            match field.parse::<f32>() {
                Ok(label) if label >= 0.0 && label.fract() == 0.0 && (label as usize) < classes => {
                    labels.push(label as u32);
                }
                _ => {
                    return Err(wrong(format!(
                        "line {number}: class `{field}` is not one of 0 to {}",
                        classes - 1
                    )));
                }
            }
        }
        if labels.is_empty() {
            return Err(wrong("it has no samples".to_owned()));
        }
        Ok(Self { sample_len, classes, samples, labels })
    }

    /// Multiplies every number by `factor`, to bring samples into a range suited to networks.
    #[must_use]
    pub fn scaled(mut self, factor: f32) -> Self {
        self.samples.iter_mut().for_each(|x| *x *= factor);
        self
    }

    /// Returns the number of values in one sample.
    pub fn sample_len(&self) -> usize {
        self.sample_len
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Splits the samples into two tables without a sample in common: the first gets `share` of the samples,
    /// drawn by `seed`.
    pub fn split(&self, share: f64, seed: u64) -> (Self, Self) {
        let order = random::permutation(random::key(seed, "split"), self.labels.len());
        let cut = ((self.labels.len() as f64 * share).round() as usize).min(order.len());
        (self.pick(&order[..cut]), self.pick(&order[cut..]))
    }

    fn pick(&self, rows: &[usize]) -> Self {
        let samples = rows.iter().flat_map(|&row| &self.samples[self.span(row)]).copied().collect();
        let labels = rows.iter().map(|&row| self.labels[row]).collect();
        Self { samples, labels, ..*self }
    }

    fn span(&self, row: usize) -> Range<usize> {
        row * self.sample_len..(row + 1) * self.sample_len
    }
}

/// Inputs `x [samples, sample_len]` and `y [samples]`, the classes.
impl Dataset for Table {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let x: Vec<f32> = samples.iter().flat_map(|&i| &self.samples[self.span(i)]).copied().collect();
        let y: Vec<u32> = samples.iter().map(|&i| self.labels[i]).collect();
        Ok(Batch::new(samples.len()).with("x", x).with("y", y))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_errors_name_the_line() {
        let cases = [
            ("", "it has no samples"),
            ("1,2,0\n1,2", "line 2 has 2 fields, 3 are needed"),
            ("1,2,0\n\n1,x,1", "line 3, field 2: `x` is not a number"),
            ("1,nan,0", "line 1, field 2: `nan` is not a number"),
            ("1,2,3", "line 1: class `3` is not one of 0 to 2"),
        ];
        for (text, message) in cases {
            let error = Table::from_csv("few.csv", text, 2, 3).unwrap_err().to_string();
            assert_eq!(error, format!("few.csv: {message}"));
        }
    }

    #[test]
    fn a_split_has_every_sample_once() {
        let table = Table::new(1, 10, (0..100).map(|i| i as f32).collect(), vec![3; 100]).unwrap();
        let (a, b) = table.split(0.8, 7);
        assert_eq!((a.len(), b.len()), (80, 20));
        let mut all = [a.samples, b.samples].concat();
        all.sort_by(f32::total_cmp);
        assert_eq!(all, table.samples);
    }
}
