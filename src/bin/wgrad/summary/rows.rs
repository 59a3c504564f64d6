//! Rows of results, grouped by their commands.

use serde_json::Value;
use wgrad::{Error, Result};

/// Reads lines of JSON.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let one = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            Error::setting("results", format!("line {}: {error}; is the file cut off?", number + 1))
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(one).collect()
}

/// Rows of one command, in the order of the first of each.
pub struct Group<'a> {
    pub command: &'a str,
    pub rows: Vec<&'a Value>,
}

impl Group<'_> {
    /// A fact of the first row that has a result.
    pub fn fact(&self, name: &str) -> &Value {
        let result = self.rows.iter().map(|row| &row["result"]).find(|result| !result[name].is_null());
        result.map_or(&Value::Null, |result| &result[name])
    }

    pub fn text(&self, name: &str) -> &str {
        self.fact(name).as_str().unwrap_or("–")
    }

    pub fn numbers(&self, name: &str) -> Vec<f64> {
        let mut list: Vec<f64> = self.rows.iter().filter_map(|row| row["result"][name].as_f64()).collect();
        list.sort_by(f64::total_cmp);
        list
    }

    /// The median; `None` if no row has the number.
    pub fn median(&self, name: &str) -> Option<f64> {
        let list = self.numbers(name);
        list.get(list.len() / 2).copied()
    }

    /// The median times a factor, with the least and the most of several runs.
    pub fn spread(&self, name: &str, factor: f64) -> String {
        let list = self.numbers(name);
        let show = |x: f64| digits(x * factor);
        match (self.median(name), &list[..]) {
            (Some(median), [least, .., most]) => {
                format!("{} ({} to {})", show(median), show(*least), show(*most))
            }
            (Some(median), _) => show(median),
            (None, _) => "–".to_owned(),
        }
    }

    /// The size of a kernel: 8x64x64.
    pub fn size(&self) -> String {
        let numbers = self.fact("size").as_array();
        numbers
            .map_or("–".to_owned(), |list| list.iter().map(Value::to_string).collect::<Vec<_>>().join("x"))
    }

    /// The options of the command that no column shows.
    pub fn options(&self) -> String {
        let mut words = self.command.split_whitespace().skip_while(|word| *word != "bench").skip(2);
        let mut shown = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "--size" | "--dtype" | "--cache" | "--adapter" | "--trace" => {
                    words.next();
                }
                "--json" | "--profile" => {}
                _ => shown.push(word),
            }
        }
        shown.join(" ")
    }
}

/// Three digits, without an exponent for what is neither tiny nor huge.
pub fn digits(x: f64) -> String {
    match x.abs() {
        size if size >= 100.0 => format!("{x:.0}"),
        size if size >= 10.0 => format!("{x:.1}"),
        size if size >= 1.0 => format!("{x:.2}"),
        size if size >= 1e-3 => format!("{x:.4}"),
        0.0 => "0".to_owned(),
        _ => format!("{x:.1e}"),
    }
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Returns the rows of some steps, those of one command together.
pub fn groups<'a>(rows: &'a [Value], steps: &[&str]) -> Vec<Group<'a>> {
    let mut list: Vec<Group> = Vec::new();
    for row in rows.iter().filter(|row| steps.contains(&row["step"].as_str().unwrap_or_default())) {
        let command = row["command"].as_str().unwrap_or_default();
        match list.iter_mut().find(|group| group.command == command) {
            Some(group) => group.rows.push(row),
            None => list.push(Group { command, rows: vec![row] }),
        }
    }
    list
}
