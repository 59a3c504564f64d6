//! Which columns of a file become samples, and the checks of every value.

use std::borrow::Cow;
use std::collections::HashMap;

use super::Table;
use crate::error::{Error, Result};

/// What happens to rows without a value in one of their columns: an empty field of a CSV file or one of `NA`, `N/A`,
/// `NaN`, `nan`, `null`, `NULL`; in a Parquet file a null or NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Missing {
    /// They are errors.
    #[default]
    Refuse,
    /// They are left out.
    SkipRow,
    /// This number, which is finite, replaces the value of an input. A target that is missing is an error.
    Replace(f32),
}

/// The columns of a file that become the samples and targets of a [`Table`], by their names.
///
/// Inputs and targets are numbers, rounded to f32; infinite ones are errors. A class is a text or a whole number;
/// the ids of classes follow the order of the numbers, or else of the texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    inputs: Option<Vec<String>>,
    targets: Vec<String>,
    /// `Some` for classes: their names, if they are known.
    classes: Option<Option<Vec<String>>>,
    missing: Missing,
}

impl Columns {
    /// The samples have the class in column `target`; all other columns are inputs.
    pub fn classes(target: &str) -> Self {
        let targets = vec![target.to_owned()];
        Self { inputs: None, targets, classes: Some(None), missing: Missing::Refuse }
    }

    /// The numbers in columns `targets` are to be predicted; all other columns are inputs.
    pub fn numbers<'a>(targets: impl IntoIterator<Item = &'a str>) -> Self {
        let targets = targets.into_iter().map(str::to_owned).collect();
        Self { inputs: None, targets, classes: None, missing: Missing::Refuse }
    }

    /// The inputs are these columns, in this order.
    #[must_use]
    pub fn inputs<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self { inputs: Some(names.into_iter().map(str::to_owned).collect()), ..self }
    }

    /// The classes and the order of their ids, such as [`Table::class_names`] of the training data: without it, a
    /// file that lacks a class has other ids. A class that is not among them is an error. Names of whole numbers are
    /// compared as numbers: `0.0` and `0` are the same class.
    #[must_use]
    pub fn class_names(self, names: &[String]) -> Self {
        Self { classes: self.classes.map(|_| Some(names.to_vec())), ..self }
    }

    /// What happens to rows with missing values.
    #[must_use]
    pub fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// Starts a table. `what` names the file and `row` its rows in errors: line or row.
    pub(super) fn start(&self, what: &str, row: &'static str, header: &[String]) -> Result<Rows<'_>> {
        let wrong = |message: String| Error::Data { what: what.to_owned(), message };
        let find = |name: &String| {
            let mut found = (0..header.len()).filter(|&i| header[i] == *name);
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(at),
                (None, _) => {
                    Err(wrong(format!("there is no column `{name}`; there are `{}`", header.join("`, `"))))
                }
                _ => Err(wrong(format!("there are several columns `{name}`"))),
            }
        };
        let targets = self.targets.iter().map(find).collect::<Result<Vec<_>>>()?;
        let inputs = match &self.inputs {
            Some(names) => names.iter().map(find).collect::<Result<Vec<_>>>()?,
            None => (0..header.len()).filter(|i| !targets.contains(i)).collect(),
        };
        if inputs.is_empty() || targets.is_empty() {
            let message = format!("{} inputs and {} targets: both are needed", inputs.len(), targets.len());
            return Err(Error::setting("columns", message));
        }
        if let Missing::Replace(number) = self.missing
            && !number.is_finite()
        {
            let message = format!("`Missing::Replace({number})`: the number must be finite");
            return Err(Error::setting("columns", message));
        }
        let names = inputs.iter().chain(&targets).map(|&i| header[i].clone()).collect();
        let known = self.classes.clone().flatten().unwrap_or_default();
        let mut ids = HashMap::new();
        for (id, name) in known.iter().enumerate() {
            let class = Cell::Text(Cow::Borrowed(name)).class().into_owned();
            if let Some(other) = ids.insert(class, id as u32) {
                let message = format!(
                    "class names {other} and {id} are the same: `{}` and `{name}`",
                    known[other as usize]
                );
                return Err(Error::setting("columns", message));
            }
        }
        Ok(Rows {
            columns: self,
            what: what.to_owned(),
            row,
            chosen: [inputs.clone(), targets].concat(),
            inputs: inputs.len(),
            names,
            samples: Vec::new(),
            numbers: Vec::new(),
            labels: Vec::new(),
            classes: known,
            ids,
            skipped: 0,
        })
    }
}

/// A value of a file. Those of a CSV file are texts.
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
pub(super) enum Cell<'a> {
    Missing,
    Integer(i128),
    Number(f64),
    Text(Cow<'a, str>),
}

/// Texts that stand for no value.
const NONE: [&str; 7] = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"];

impl Cell<'_> {
    fn is_missing(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::Integer(_) => false,
            Self::Number(number) => number.is_nan(),
            Self::Text(text) => NONE.contains(&text.trim()),
        }
    }

    /// Returns the number, or the text that is not one.
    fn number(&self) -> Result<f32, String> {
        let (number, text) = match self {
            Self::Integer(number) => (Some(*number as f32), Cow::Owned(number.to_string())),
            Self::Number(number) => (Some(*number as f32), Cow::Owned(number.to_string())),
            Self::Text(text) => (text.trim().parse::<f32>().ok(), Cow::Borrowed(text.trim())),
            Self::Missing => (None, Cow::Borrowed("")),
        };
        number.filter(|number| number.is_finite()).ok_or_else(|| text.into_owned())
    }

    /// Returns the name of a class. Some writers print whole numbers as `3.0`.
    fn class(&self) -> Cow<'_, str> {
        let whole = |number: f64| number.fract() == 0.0 && number.abs() < 1e15;
        match self {
            Self::Missing => Cow::Borrowed(""),
            Self::Integer(number) => Cow::Owned(number.to_string()),
            Self::Number(number) if whole(*number) => Cow::Owned((*number as i64).to_string()),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => match text.trim().parse::<f64>() {
                Ok(number) if text.contains('.') && whole(number) => Cow::Owned((number as i64).to_string()),
                _ => Cow::Borrowed(text.trim()),
            },
        }
    }
}

/// A table that is read row by row.
pub(super) struct Rows<'a> {
    columns: &'a Columns,
    what: String,
    row: &'static str,
    /// Indices of the chosen columns: inputs, then targets.
    pub(super) chosen: Vec<usize>,
    inputs: usize,
    names: Vec<String>,
    samples: Vec<f32>,
    numbers: Vec<f32>,
    labels: Vec<u32>,
    classes: Vec<String>,
    ids: HashMap<String, u32>,
    skipped: usize,
}

impl Rows<'_> {
    /// Adds a row by the cells of the chosen columns.
    pub(super) fn push<'c>(&mut self, number: u64, cells: impl Iterator<Item = Cell<'c>>) -> Result<()> {
        let (samples, numbers) = (self.samples.len(), self.numbers.len());
        for (i, cell) in cells.enumerate() {
            let input = i < self.inputs;
            if cell.is_missing() {
                match self.columns.missing {
                    Missing::Replace(number) if input => {
                        self.samples.push(number);
                        continue;
                    }
                    Missing::SkipRow => {
                        self.samples.truncate(samples);
                        self.numbers.truncate(numbers);
                        self.skipped += 1;
                        return Ok(());
                    }
                    Missing::Refuse if input => {
                        return Err(self.wrong(
                            number,
                            i,
                            "it has no value; `Columns::missing` can skip such rows or replace the value",
                        ));
                    }
                    _ => {
                        return Err(self.wrong(
                            number,
                            i,
                            "the target has no value; `Columns::missing(Missing::SkipRow)` skips such rows",
                        ));
                    }
                }
            }
            if !input && self.columns.classes.is_some() {
                let class = cell.class();
                let id = match self.ids.get(&*class) {
                    Some(id) => *id,
                    None => self.add_class(number, i, &class)?,
                };
                self.labels.push(id);
                continue;
            }
            match cell.number() {
                Ok(value) if input => self.samples.push(value),
                Ok(value) => self.numbers.push(value),
                Err(text) => return Err(self.wrong(number, i, &format!("`{text}` is not a number"))),
            }
        }
        Ok(())
    }

    fn add_class(&mut self, number: u64, i: usize, class: &str) -> Result<u32> {
        if matches!(self.columns.classes, Some(Some(_))) {
            let known = self.classes.join("`, `");
            return Err(self.wrong(number, i, &format!("there is no class `{class}`; there are `{known}`")));
        }
        let id = self.classes.len() as u32;
        self.classes.push(class.to_owned());
        self.ids.insert(class.to_owned(), id);
        Ok(id)
    }

    fn wrong(&self, number: u64, i: usize, message: &str) -> Error {
        let message = format!("{} {number}, column `{}`: {message}", self.row, self.names[i]);
        Error::Data { what: self.what.clone(), message }
    }

    pub(super) fn finish(self) -> Result<Table> {
        let Self { columns, what, inputs, mut samples, numbers, mut labels, mut classes, skipped, .. } = self;
        if samples.is_empty() {
            let message =
                format!("it has no samples; rows with missing values that were left out: {skipped}");
            return Err(Error::Data { what, message });
        }
        if skipped > 0 {
            log::info!("{what}: {skipped} rows with missing values were left out");
        }
        samples.shrink_to_fit();
        if columns.classes.is_none() {
            return Table::regression(inputs, columns.targets.len(), samples, numbers);
        }
        if columns.classes == Some(None) {
            let order = order(&classes);
            let mut ids = vec![0; order.len()];
            order.iter().enumerate().for_each(|(id, &found)| ids[found] = id as u32);
            labels.iter_mut().for_each(|label| *label = ids[*label as usize]);
            classes = order.iter().map(|&found| classes[found].clone()).collect();
        }
        Ok(Table::new(inputs, classes.len(), samples, labels)?.named(classes))
    }
}

/// Returns the indices of names in order: of their numbers if all are, else of the texts.
fn order(names: &[String]) -> Vec<usize> {
    let numbers: Option<Vec<f64>> = names.iter().map(|name| name.parse().ok()).collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    match numbers {
        Some(numbers) => order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b])),
        None => order.sort_by(|&a, &b| names[a].cmp(&names[b])),
    }
    order
}
