//! Tables from CSV files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::Table;
use super::columns::{Cell, Columns};
use crate::error::{Error, Result};

impl Table {
    /// Reads columns of a CSV file whose first line has their names, in UTF-8. Fields are separated by commas or, if
    /// the first line has none, by semicolons or tabs; they may be quoted as in RFC 4180. The file is read row by
    /// row, and the table is in memory: 4 bytes for each value of the chosen columns.
    ///
    /// ```no_run
    /// use wgrad::data::{Columns, Missing, Table};
    ///
    /// let columns = Columns::classes("species").inputs(["length", "width"]).missing(Missing::SkipRow);
    /// let train = Table::read_csv("train.csv", &columns)?;
    /// let test = Table::read_csv("test.csv", &columns.clone().class_names(train.class_names()))?;
    /// println!("{} classes, {}", train.classes(), train.bytes());
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Data`] with the file, line and column of what is missing, damaged or not a number.
    pub fn read_csv(path: impl AsRef<Path>, columns: &Columns) -> Result<Self> {
        let what = path.as_ref().display().to_string();
        let file = File::open(&path)
            .map_err(|error| Error::Data { what: what.clone(), message: error.to_string() })?;
        read(&what, file, columns)
    }
}

fn read(what: &str, file: impl Read, columns: &Columns) -> Result<Table> {
    let wrong = |message: String| Error::Data { what: what.to_owned(), message };
    let mut file = Lines { file: BufReader::new(file), line: Vec::new(), read: 0, ended: false };
    file.next().map_err(|error| wrong(error.to_string()))?;
    let delimiter = [b',', b';', b'\t'].into_iter().find(|d| file.line.contains(d)).unwrap_or(b',');
    let mut reader =
        ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(file);
    let mut record = ByteRecord::new();
    // Returns the line in which the next record begins; `None` at the end.
    let mut next = |record: &mut ByteRecord| {
        let found = reader.read_byte_record(record).map_err(|error| wrong(error.to_string()))?;
        // The parser numbers a record before it skips empty lines, so the number is counted back from where the
        // record ends.
        let inside = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        // Every line has an end, which would have ended the record.
        if found && reader.get_ref().ended {
            let line = reader.position().line().saturating_sub(inside).max(1);
            return Err(wrong(format!("line {line}: a quote is opened and never closed")));
        }
        Ok(found.then(|| reader.position().line().saturating_sub(inside + 1).max(1)))
    };
    let check = |record: &ByteRecord, line: u64| {
        let text = record.iter().all(|field| std::str::from_utf8(field).is_ok());
        if text { Ok(()) } else { Err(wrong(format!("line {line} is not UTF-8"))) }
    };
    let first = next(&mut record)?.unwrap_or(1);
    check(&record, first)?;
    let header: Vec<String> =
        record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    let mut rows = columns.start(what, "line", &header)?;
    let chosen = rows.chosen.clone();
    while let Some(line) = next(&mut record)? {
        if record.len() != header.len() {
            let (found, wanted) = (record.len(), header.len());
            return Err(wrong(format!("line {line} has {found} fields, the first line {wanted}")));
        }
        check(&record, line)?;
        let cell = |&i: &usize| Cell::Text(String::from_utf8_lossy(&record[i]));
        rows.push(line, chosen.iter().map(cell))?;
    }
    rows.finish()
}

/// The lines of a file, each ended by one line feed, also the last: after `\r\n` the parser has read one byte or both, and
/// counts the line later.
struct Lines<R> {
    file: R,
    line: Vec<u8>,
    /// Bytes of the line that are passed on.
    read: usize,
    /// Whether more was asked for than there is.
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> io::Result<()> {
        self.line.clear();
        self.read = 0;
        self.ended = self.file.read_until(b'\n', &mut self.line)? == 0;
        if !self.ended {
            let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let text = text.strip_suffix(b"\r").unwrap_or(text).len();
            self.line.truncate(text);
            self.line.push(b'\n');
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.line.len() {
            self.next()?;
        }
        let count = (&self.line[self.read..]).read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dataset, Missing};
    use super::*;

    fn table(text: &str, columns: &Columns) -> Result<Table> {
        read("few.csv", text.as_bytes(), columns)
    }

    const IRIS: &str = "length,\"width, cm\",species\n1.5,2,setosa\n\n3,-4e1,\"iris, blue\"\n5,6,setosa\n";

    #[test]
    fn columns_become_inputs_and_classes() {
        let table = table(IRIS, &Columns::classes("species")).unwrap();
        assert_eq!(table.class_names(), ["iris, blue", "setosa"]);
        let batch = table.batch(&[0, 1, 2]).unwrap();
        assert_eq!((batch.f32("x"), batch.u32("y")), (&[1.5, 2.0, 3.0, -40.0, 5.0, 6.0][..], &[1, 0, 1][..]));
        assert_eq!((table.classes(), table.bytes().0), (2, 4 * 9));
    }

    #[test]
    fn a_quote_that_stays_open_is_named_by_its_line() {
        for (text, line) in [("x,y\n1,2\n3,\"4\n5,6", 3), ("x,y\n1,2\n3,\"4", 3), ("x,\"y\n1,2\n", 1)] {
            let error = table(text, &Columns::numbers(["y"])).unwrap_err().to_string();
            assert_eq!(error, format!("few.csv: line {line}: a quote is opened and never closed"));
        }
        let closed = table("x,y\n1,\"2\n\"\n3,4", &Columns::numbers(["x"]).inputs(["x"])).unwrap();
        assert_eq!(closed.len(), 2);
    }

    #[test]
    fn columns_are_chosen_and_ordered_by_name() {
        let columns = Columns::numbers(["width, cm"]).inputs(["length"]);
        let batch = table(IRIS, &columns).unwrap().batch(&[1]).unwrap();
        assert_eq!((batch.f32("x"), batch.f32("y")), (&[3.0][..], &[-40.0][..]));
        // Semicolons, a byte order mark, carriage returns.
        let text = "\u{feff}a;b;c\r\n1;2;3\r\n4;5;6\r\n";
        let batch = table(text, &Columns::numbers(["b", "a"])).unwrap().batch(&[1]).unwrap();
        assert_eq!((batch.f32("x"), batch.f32("y")), (&[6.0][..], &[5.0, 4.0][..]));
    }

    #[test]
    fn ids_of_classes_are_in_the_order_of_their_numbers_or_names() {
        let ids = |text: &str, columns: Columns| {
            let table = table(&format!("x,y\n{text}"), &columns)?;
            Ok::<_, Error>((table.class_names().to_vec(), table.batch(&[0, 1, 2])?.u32("y").to_vec()))
        };
        let (names, labels) = ids("0,10\n0,9.0\n0,10.0", Columns::classes("y")).unwrap();
        assert_eq!((names.join(" "), labels), ("9 10".to_owned(), vec![1, 0, 1]));
        let (names, labels) = ids("0,b\n0,10\n0,9", Columns::classes("y")).unwrap();
        assert_eq!((names.join(" "), labels), ("10 9 b".to_owned(), vec![2, 0, 1]));
        let known = ["c", "b", "a"].map(str::to_owned);
        let (_, labels) = ids("0,b\n0,b\n0,a", Columns::classes("y").class_names(&known)).unwrap();
        assert_eq!(labels, [1, 1, 2]);
        let numbers = ["1.0", "0"].map(str::to_owned);
        let (_, labels) = ids("0,0\n0,1\n0,0.0", Columns::classes("y").class_names(&numbers)).unwrap();
        assert_eq!(labels, [1, 0, 1]);
        let twice = ["1", "0", "1.0"].map(str::to_owned);
        let error = ids("0,0", Columns::classes("y").class_names(&twice)).unwrap_err().to_string();
        assert!(error.contains("class names 0 and 2 are the same: `1` and `1.0`"), "{error}");
        let error = ids("0,b\n0,x\n0,a", Columns::classes("y").class_names(&known)).unwrap_err().to_string();
        assert_eq!(error, "few.csv: line 3, column `y`: there is no class `x`; there are `c`, `b`, `a`");
    }

    #[test]
    fn missing_values_are_refused_skipped_or_replaced() {
        let text = "a,b,y\n1,,0\n2,3,1\nNA,4,NaN\n";
        let of = |missing| {
            let table = table(text, &Columns::classes("y").missing(missing))?;
            Ok::<_, Error>(table.batch(&(0..table.len()).collect::<Vec<_>>())?.f32("x").to_vec())
        };
        let error = of(Missing::Refuse).unwrap_err().to_string();
        assert!(
            error.starts_with("few.csv: line 2, column `b`: it has no value; `Columns::missing`"),
            "{error}"
        );
        assert_eq!(of(Missing::SkipRow).unwrap(), [2.0, 3.0]);
        let error = of(Missing::Replace(-1.0)).unwrap_err().to_string();
        assert!(error.starts_with("few.csv: line 4, column `y`: the target has no value"), "{error}");
        for number in [f32::NAN, f32::INFINITY] {
            let error = of(Missing::Replace(number)).unwrap_err();
            assert!(matches!(error, Error::Setting { .. }), "{error}");
        }
        let replaced =
            table("a,y\n1,0\n,1\n", &Columns::classes("y").missing(Missing::Replace(-1.0))).unwrap();
        assert_eq!(replaced.batch(&[0, 1]).unwrap().f32("x"), [1.0, -1.0]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let cases = [
            ("", "there is no column `y`; there are ``"),
            ("a,b\n1,2", "there is no column `y`; there are `a`, `b`"),
            ("a,y,y\n1,2,3", "there are several columns `y`"),
            ("a,y\n", "it has no samples; rows with missing values that were left out: 0"),
            ("a,y\n1,2\n1,2,3", "line 3 has 3 fields, the first line 2"),
            ("a,y\n1,2\n\"1\n2\",2", "line 3, column `a`: `1\n2` is not a number"),
            ("a,y\n1,2\ninf,2", "line 3, column `a`: `inf` is not a number"),
            ("a,y\n1,2\n1e39,2", "line 3, column `a`: `1e39` is not a number"),
            ("a,y\r\n1,2\r\nx,3\r\n", "line 3, column `a`: `x` is not a number"),
            ("a,y\r\n1,2\r\nx,3", "line 3, column `a`: `x` is not a number"),
            ("a,y\r\n1,2\r\n\r\n1,2,3\r\n", "line 4 has 3 fields, the first line 2"),
            ("\na,y\n1,2\n\nx,3\n", "line 5, column `a`: `x` is not a number"),
            ("a,y\n1,2\n\nx,3\n", "line 4, column `a`: `x` is not a number"),
            ("a,y\n\"\n1\n\",2\nx,3\n", "line 5, column `a`: `x` is not a number"),
            ("a,y\r\n\"1\r\n\",2\r\nx,3\r\n", "line 4, column `a`: `x` is not a number"),
            ("a,y\n1,2\n1,two", "line 3, column `y`: `two` is not a number"),
        ];
        for (text, message) in cases {
            let error = table(text, &Columns::numbers(["y"])).unwrap_err().to_string();
            assert_eq!(error, format!("few.csv: {message}"));
        }
        let latin = read("few.csv", &b"a,y\n1,2\n\xe9,3\n"[..], &Columns::numbers(["y"])).unwrap_err();
        assert_eq!(latin.to_string(), "few.csv: line 3 is not UTF-8");
        let latin = read("few.csv", &b"a,\xe9\n"[..], &Columns::numbers(["y"])).unwrap_err();
        assert_eq!(latin.to_string(), "few.csv: line 1 is not UTF-8");
        assert!(matches!(table("y\n1", &Columns::numbers(["y"])), Err(Error::Setting { .. })));
        assert!(Table::read_csv("no/such.csv", &Columns::classes("y")).is_err());
    }
}
