//! Tables from Parquet files.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use half::f16;
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::Table;
use super::columns::{Cell, Columns};
use crate::error::{Error, Result};

/// Rows that are read from a column at once.
const ROWS: usize = 4096;

impl Table {
    /// Reads columns of a Parquet file: integers, floats, decimals of up to 64 bits, booleans (0 and 1) and, for
    /// classes, texts. A column inside of others is named by its path, `a.b`. The file is read in pieces of its row
    /// groups, and the table is in memory: 4 bytes for each value of the chosen columns.
    ///
    /// Uncompressed files and those compressed with Snappy can be read. For other codecs, an app names the crate with
    /// the codec's feature in its manifest: `parquet = { version = "60", default-features = false, features = ["zstd"] }`.
    ///
    /// ```no_run
    /// use wgrad::data::{Columns, Table};
    ///
    /// let houses = Table::read_parquet("houses.parquet", &Columns::numbers(["price"]).inputs(["area", "rooms"]))?;
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Data`] with the file, row (counted from 0) and column of what is missing, damaged or not a number.
    pub fn read_parquet(path: impl AsRef<Path>, columns: &Columns) -> Result<Self> {
        let what = path.as_ref().display().to_string();
        let file = File::open(&path)
            .map_err(|error| Error::Data { what: what.clone(), message: error.to_string() })?;
        read(&what, file, columns)
    }
}

fn read(what: &str, file: impl ChunkReader + 'static, columns: &Columns) -> Result<Table> {
    let wrong = |message: String| Error::Data { what: what.to_owned(), message };
    let failed = |place: String, error: ParquetError| {
        let text = error.to_string();
        let help = if text.contains("Disabled feature") {
            "\nhelp: name the crate `parquet` with that feature in the app's Cargo.toml, or write the file with Snappy"
        } else {
            ""
        };
        wrong(format!("{place}{text}{help}"))
    };
    let file = SerializedFileReader::new(file).map_err(|error| failed(String::new(), error))?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let header: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let mut rows = columns.start(what, "row", &header)?;
    let chosen = rows.chosen.clone();
    let kinds = chosen.iter().map(|&i| {
        Kind::of(&schema.column(i)).map_err(|found| wrong(format!("column `{}` holds {found}", header[i])))
    });
    let kinds = kinds.collect::<Result<Vec<_>>>()?;
    // Without a row, a piece of rows cannot be read.
    let in_column = |number: u64, i: usize, row: Option<usize>, error: ParquetError| {
        let rows = match row {
            Some(row) => format!("row {}", number + row as u64),
            None => format!("rows from {number} on"),
        };
        failed(format!("{rows}, column `{}`: ", header[i]), error)
    };
    let mut number = 0;
    for group in 0..file.num_row_groups() {
        let from = format!("rows from {number} on: ");
        let group = file.get_row_group(group).map_err(|error| failed(from, error))?;
        let readers = chosen.iter().map(|&i| {
            let reader = group.get_column_reader(i);
            reader.map_err(|error| in_column(number, i, None, error))
        });
        let mut readers = readers.collect::<Result<Vec<_>>>()?;
        loop {
            let mut cells = Vec::with_capacity(readers.len());
            for ((reader, kind), &i) in readers.iter_mut().zip(&kinds).zip(&chosen) {
                let read = kind.read(reader, schema.column(i).max_def_level());
                cells.push(read.map_err(|(row, error)| in_column(number, i, row, error))?);
            }
            let count = cells[0].len();
            if let Some(other) = cells.iter().find(|other| other.len() != count) {
                return Err(wrong(format!(
                    "columns of {count} and {} rows from row {number} on",
                    other.len()
                )));
            }
            if count == 0 {
                break;
            }
            let mut cells: Vec<_> = cells.into_iter().map(Vec::into_iter).collect();
            for _ in 0..count {
                // All of them, also those after the value for which a row is left out.
                let row: Vec<_> = cells.iter_mut().filter_map(Iterator::next).collect();
                rows.push(number, row.into_iter())?;
                number += 1;
            }
        }
    }
    rows.finish()
}

/// How the values of a column are understood.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Unsigned,
    /// Integers over this power of ten.
    Decimal(i32),
}

impl Kind {
    /// An error says what the column holds that is neither a number nor a text.
    fn of(column: &ColumnDescriptor) -> Result<Self, String> {
        let (physical, converted) = (column.physical_type(), column.converted_type());
        if column.max_rep_level() > 0 {
            return Err("lists: only one value in a row can be read".to_owned());
        }
        let times = "dates or times: write them as numbers first".to_owned();
        let integer = matches!(physical, Type::INT32 | Type::INT64);
        match column.logical_type_ref() {
            Some(LogicalType::Decimal(decimal)) if integer => return Ok(Self::Decimal(decimal.scale)),
            Some(LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_)) => return Err(times),
            Some(LogicalType::Integer(kind)) if integer && !kind.is_signed => return Ok(Self::Unsigned),
            Some(LogicalType::Float16) if column.type_length() == 2 => return Ok(Self::Plain),
            _ => {}
        }
        match (converted, physical) {
            (ConvertedType::DECIMAL, _) if integer => Ok(Self::Decimal(column.type_scale())),
            (ConvertedType::DECIMAL, _) => Err("decimals of more than 64 bits".to_owned()),
            (
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64,
                _,
            ) => Ok(Self::Unsigned),
            (
                ConvertedType::DATE
                | ConvertedType::TIME_MILLIS
                | ConvertedType::TIME_MICROS
                | ConvertedType::TIMESTAMP_MILLIS
                | ConvertedType::TIMESTAMP_MICROS,
                _,
            )
            | (_, Type::INT96) => Err(times),
            (_, Type::FIXED_LEN_BYTE_ARRAY) => Err("byte arrays of a fixed length".to_owned()),
            _ => Ok(Self::Plain),
        }
    }

    /// Returns the next cells, none at the end of the row group.
    fn read(self, reader: &mut ColumnReader, level: i16) -> Result<Vec<Cell<'static>>, Unreadable> {
        let integer = |signed: i64, unsigned: u64| match self {
            Self::Plain => Cell::Integer(i128::from(signed)),
            Self::Unsigned => Cell::Integer(i128::from(unsigned)),
            Self::Decimal(scale) => Cell::Number(signed as f64 / 10f64.powi(scale)),
        };
        match reader {
            ColumnReader::BoolColumnReader(reader) => {
                cells(reader, level, |x| Ok(Cell::Integer(i128::from(x))))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                cells(reader, level, |x| Ok(integer(i64::from(x), u64::from(x as u32))))
            }
            ColumnReader::Int64ColumnReader(reader) => cells(reader, level, |x| Ok(integer(x, x as u64))),
            ColumnReader::FloatColumnReader(reader) => {
                cells(reader, level, |x| Ok(Cell::Number(f64::from(x))))
            }
            ColumnReader::DoubleColumnReader(reader) => cells(reader, level, |x| Ok(Cell::Number(x))),
            ColumnReader::ByteArrayColumnReader(reader) => cells(reader, level, |x| {
                let text = std::str::from_utf8(x.data());
                let text =
                    text.map_err(|_| ParquetError::General("bytes that are not a text in UTF-8".to_owned()))?;
                Ok(Cell::Text(Cow::Owned(text.to_owned())))
            }),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                cells(reader, level, |x| match *x.data() {
                    [a, b] => Ok(Cell::Number(f64::from(f16::from_le_bytes([a, b])))),
                    _ => Err(ParquetError::General("a half float that does not have 2 bytes".to_owned())),
                })
            }
            ColumnReader::Int96ColumnReader(_) => {
                Err((None, ParquetError::General("96-bit timestamps cannot be read".to_owned())))
            }
        }
    }
}

/// Which of the next rows cannot be read, if it is known, and why.
type Unreadable = (Option<usize>, ParquetError);

/// Reads values and where they are missing: `level` is the definition level of a value that is there.
fn cells<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    level: i16,
    cell: impl Fn(T::T) -> Result<Cell<'static>, ParquetError>,
) -> Result<Vec<Cell<'static>>, Unreadable> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    reader.read_records(ROWS, Some(&mut levels), None, &mut values).map_err(|error| (None, error))?;
    let in_row = |(row, cell): (usize, Result<_, ParquetError>)| cell.map_err(|error| (Some(row), error));
    let mut values = values.into_iter();
    if level == 0 {
        return values.map(cell).enumerate().map(in_row).collect();
    }
    let fewer = || ParquetError::General("fewer values than rows".to_owned());
    let next = |found: i16| match found == level {
        true => cell(values.next().ok_or_else(fewer)?),
        false => Ok(Cell::Missing),
    };
    levels.into_iter().map(next).enumerate().map(in_row).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::super::Missing;
    use super::*;

    /// A file of 5,000 numbers and texts, of which one is not UTF-8.
    fn file() -> Vec<u8> {
        let schema = "message few { required double x; required binary name (STRING); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let numbers: Vec<f64> = (0..5000).map(|i| if i == 7 { f64::NAN } else { f64::from(i) }).collect();
        column.typed::<DoubleType>().write_batch(&numbers, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let name = |i| if i == 4500 { ByteArray::from(vec![0xe9]) } else { ByteArray::from("oak") };
        let names: Vec<_> = (0..5000).map(name).collect();
        column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        bytes
    }

    #[test]
    fn errors_name_row_and_column() {
        let columns = Columns::classes("name").missing(Missing::Replace(0.0));
        let path = std::env::temp_dir().join(format!("wgrad-{}.parquet", std::process::id()));
        let error = |bytes: Vec<u8>| {
            std::fs::write(&path, bytes).unwrap();
            let error = read("few", File::open(&path).unwrap(), &columns).unwrap_err().to_string();
            std::fs::remove_file(&path).unwrap();
            error
        };
        let text = error(file());
        assert!(text.starts_with("few: row 4500, column `name`: ") && text.contains("UTF-8"), "{text}");
        // The first page of a column does not begin with its header.
        let mut bytes = file();
        bytes[4..40].fill(0xff);
        let text = error(bytes);
        assert!(text.starts_with("few: rows from 0 on, column `x`: "), "{text}");
    }
}
