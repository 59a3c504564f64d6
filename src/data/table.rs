//! A data set in memory, and a reader for comma-separated text.

use std::fmt;
use std::ops::Range;

use super::{Batch, Dataset};
use crate::error::{Error, Result};
use crate::random;
use crate::units::Bytes;

/// Samples in memory, each with a class or with numbers to predict: 4 bytes for each value
/// ([`Table::bytes`]).
#[derive(Clone, PartialEq)]
pub struct Table {
    sample_len: usize,
    samples: Vec<f32>,
    targets: Targets,
}

/// What is to be predicted.
#[derive(Clone, PartialEq)]
enum Targets {
    /// `names` has a name for each class, or none.
    Classes {
        labels: Vec<u32>,
        classes: usize,
        names: Vec<String>,
    },
    Numbers {
        values: Vec<f32>,
        each: usize,
    },
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
        Ok(Self { sample_len, samples, targets: Targets::Classes { labels, classes, names: Vec::new() } })
    }

    /// Creates a table of samples of `sample_len` values, with `target_len` numbers to predict for each.
    ///
    /// # Errors
    /// [`Error::Data`] if the lengths do not agree; [`Error::Setting`] for a `target_len` of 0.
    pub fn regression(
        sample_len: usize,
        target_len: usize,
        samples: Vec<f32>,
        targets: Vec<f32>,
    ) -> Result<Self> {
        if target_len == 0 {
            return Err(Error::setting("target_len", "0 numbers to predict: there must be at least 1"));
        }
        if !targets.len().is_multiple_of(target_len)
            || samples.len() != targets.len() / target_len * sample_len
        {
            let (numbers, targets) = (samples.len(), targets.len());
            let message = format!(
                "{numbers} numbers and {targets} targets are not samples of {sample_len} with {target_len} each"
            );
            return Err(Error::Data { what: "table".to_owned(), message });
        }
        Ok(Self { sample_len, samples, targets: Targets::Numbers { values: targets, each: target_len } })
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
        Self::new(sample_len, classes, samples, labels)
    }

    /// Names the classes of a table that has as many.
    #[cfg(any(feature = "csv", feature = "parquet"))]
    pub(super) fn named(mut self, list: Vec<String>) -> Self {
        if let Targets::Classes { names, .. } = &mut self.targets {
            *names = list;
        }
        self
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

    /// Returns the number of classes; 0 if there are numbers to predict.
    pub fn classes(&self) -> usize {
        match &self.targets {
            Targets::Classes { classes, .. } => *classes,
            Targets::Numbers { .. } => 0,
        }
    }

    /// Returns the names of the classes by their ids, if the table was read from a file that has them.
    pub fn class_names(&self) -> &[String] {
        match &self.targets {
            Targets::Classes { names, .. } => names,
            Targets::Numbers { .. } => &[],
        }
    }

    /// Returns the bytes of its samples and targets in the host's memory.
    pub fn bytes(&self) -> Bytes {
        let targets = match &self.targets {
            Targets::Classes { labels, .. } => labels.len(),
            Targets::Numbers { values, .. } => values.len(),
        };
        Bytes(4 * (self.samples.len() + targets) as u64)
    }

    /// Splits the samples into two tables without a sample in common: the first gets `share` of the samples,
    /// drawn by `seed`.
    pub fn split(&self, share: f64, seed: u64) -> (Self, Self) {
        let (first, second) = random::split(self.len(), share, seed);
        (self.pick(&first), self.pick(&second))
    }

    fn pick(&self, rows: &[usize]) -> Self {
        Self { sample_len: self.sample_len, samples: self.rows(rows), targets: self.targets.pick(rows) }
    }

    fn rows(&self, rows: &[usize]) -> Vec<f32> {
        rows.iter().flat_map(|&row| &self.samples[span(row, self.sample_len)]).copied().collect()
    }
}

impl Targets {
    fn pick(&self, rows: &[usize]) -> Self {
        match self {
            Self::Classes { labels, classes, names } => Self::Classes {
                labels: rows.iter().map(|&row| labels[row]).collect(),
                classes: *classes,
                names: names.clone(),
            },
            Self::Numbers { values, each } => Self::Numbers {
                values: rows.iter().flat_map(|&row| &values[span(row, *each)]).copied().collect(),
                each: *each,
            },
        }
    }
}

fn span(row: usize, each: usize) -> Range<usize> {
    row * each..(row + 1) * each
}

/// Its size, not its values.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, values) = (self.len(), self.sample_len);
        write!(f, "Table({samples} samples of {values} values, ")?;
        match &self.targets {
            Targets::Classes { classes, .. } => write!(f, "{classes} classes)"),
            Targets::Numbers { each, .. } => write!(f, "{each} numbers to predict)"),
        }
    }
}

/// Inputs `x [samples, sample_len]` and `y`: the classes `[samples]`, or the numbers to predict
/// `[samples, target_len]`.
impl Dataset for Table {
    fn len(&self) -> usize {
        match &self.targets {
            Targets::Classes { labels, .. } => labels.len(),
            Targets::Numbers { values, each } => values.len() / each,
        }
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let batch = Batch::new(samples.len()).with("x", self.rows(samples));
        Ok(match self.targets.pick(samples) {
            Targets::Classes { labels, .. } => batch.with("y", labels),
            Targets::Numbers { values, .. } => batch.with("y", values),
        })
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
    fn numbers_to_predict_follow_their_samples() {
        let table =
            Table::regression(1, 2, vec![1.0, 2.0, 3.0], vec![1.0, -1.0, 2.0, -2.0, 3.0, -3.0]).unwrap();
        assert_eq!((table.len(), table.classes(), table.bytes()), (3, 0, Bytes(36)));
        assert_eq!(table.batch(&[2, 0]).unwrap().f32("y"), [3.0, -3.0, 1.0, -1.0]);
        let (a, b) = table.split(0.67, 0);
        assert_eq!((a.len(), b.len()), (2, 1));
        assert_eq!(format!("{a:?}"), "Table(2 samples of 1 values, 2 numbers to predict)");
        let error = Table::regression(1, 2, vec![1.0], vec![1.0]).unwrap_err().to_string();
        assert_eq!(error, "table: 1 numbers and 1 targets are not samples of 1 with 2 each");
        assert!(matches!(Table::regression(1, 0, vec![], vec![]), Err(Error::Setting { .. })));
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
