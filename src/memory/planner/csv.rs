//! Problems and solutions as CSV, in the format of MiniMalloc (google/minimalloc): `id,lower,upper,size`, and
//! optionally `alignment`, `arena` and `offset`. An item with an offset is fixed there, so a solution is read
//! back as a problem in which all items are fixed.

use std::io::{self, Write};

use super::error::PackError;
use super::problem::{Item, Placement, Problem, Solution};

const COLUMNS: &str = "id, lower, upper, size, alignment, arena, offset";

/// What a column holds. The first three have several accepted names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Id,
    Lower,
    Upper,
    /// The last instant rather than the one after it.
    End,
    Size,
    Alignment,
    Arena,
    Offset,
}

fn csv_error(line: usize, message: impl Into<String>) -> PackError {
    PackError::Csv { line, message: message.into() }
}

/// Reads a problem. The first line names the columns, in any order; lifetimes are half-open, but a column
/// called `end` holds the last instant alive, as in MiniMalloc. Blank lines are skipped.
///
/// # Errors
/// [`PackError::Csv`] with the line number for a missing or unknown column, a wrong number of fields, or a
/// field that is not a number. The values of the numbers are checked by [`solve`](super::solve).
pub fn read_problem(text: &str) -> Result<Problem, PackError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let Some((line, header)) = lines.by_ref().find(|(_, line)| !line.trim().is_empty()) else {
        return Err(csv_error(1, format!("the file is empty; the first line names the columns ({COLUMNS})")));
    };
    let columns = columns_of(line, header)?;
    let mut problem = Problem::default();
    for (line, record) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let fields = split(line, record)?;
        if fields.len() != columns.len() {
            let message = format!("{} fields where the header has {}", fields.len(), columns.len());
            return Err(csv_error(line, message));
        }
        problem.items.push(item_of(line, &columns, fields)?);
    }
    Ok(problem)
}

fn columns_of(line: usize, header: &str) -> Result<Vec<Column>, PackError> {
    let mut columns = Vec::new();
    for name in split(line, header)? {
        let column = match name.trim() {
            "id" | "buffer" | "buffer_id" => Column::Id,
            "lower" | "start" | "begin" => Column::Lower,
            "upper" => Column::Upper,
            "end" => Column::End,
            "size" => Column::Size,
            "alignment" => Column::Alignment,
            "arena" => Column::Arena,
            "offset" => Column::Offset,
            other => return Err(csv_error(line, format!("unknown column '{other}'; known are {COLUMNS}"))),
        };
        let same = |&known: &Column| known == column || (ends(known) && ends(column));
        if columns.iter().any(same) {
            return Err(csv_error(line, format!("column '{}' appears twice", name.trim())));
        }
        columns.push(column);
    }
    for (needed, name) in [(Column::Id, "id"), (Column::Lower, "lower"), (Column::Size, "size")] {
        if !columns.contains(&needed) {
            return Err(csv_error(
                line,
                format!("column '{name}' is missing; needed are id, lower, upper, size"),
            ));
        }
    }
    if !columns.iter().any(|&column| ends(column)) {
        return Err(csv_error(line, "column 'upper' is missing; needed are id, lower, upper, size"));
    }
    Ok(columns)
}

fn ends(column: Column) -> bool {
    matches!(column, Column::Upper | Column::End)
}

fn item_of(line: usize, columns: &[Column], fields: Vec<String>) -> Result<Item, PackError> {
    let mut item = Item::new("", 0, 0, 0);
    let mut offset = None;
    for (column, field) in columns.iter().zip(fields) {
        let number = |name: &str| -> Result<u64, PackError> {
            field.trim().parse::<u64>().map_err(|_| {
                csv_error(
                    line,
                    format!("{name} is '{}'; a whole number from 0 to 2^64 - 1 was expected", field.trim()),
                )
            })
        };
        match column {
            Column::Id => item.name = field.trim().to_owned(),
            Column::Lower => item.lower = number("lower")?,
            Column::Upper => item.upper = number("upper")?,
            Column::End => {
                item.upper = number("end")?
                    .checked_add(1)
                    .ok_or_else(|| csv_error(line, "end is 2^64 - 1, which leaves no instant after it"))?;
            }
            Column::Size => item.size = number("size")?,
            Column::Alignment => item.alignment = number("alignment")?,
            Column::Arena => {
                item.arena = u32::try_from(number("arena")?)
                    .map_err(|_| csv_error(line, format!("arena {} is beyond 2^32 - 1", field.trim())))?;
            }
            Column::Offset if field.trim().is_empty() => {}
            Column::Offset => offset = Some(number("offset")?),
        }
    }
    item.fixed = offset.map(|offset| Placement { arena: item.arena, offset });
    Ok(item)
}

/// Returns the fields of one record; a field in double quotes may contain commas, and quotes written twice.
fn split(line: usize, record: &str) -> Result<Vec<String>, PackError> {
    if !record.contains('"') {
        return Ok(record.split(',').map(str::to_owned).collect());
    }
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = record.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                fields.last_mut().into_iter().for_each(|field| field.push('"'));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().into_iter().for_each(|field| field.push(other)),
        }
    }
    if quoted {
        return Err(csv_error(line, "a double quote is opened and never closed"));
    }
    Ok(fields)
}

/// Writes `problem` so that [`read_problem`] reads it back; limits are not part of the format.
///
/// # Errors
/// Those of the writer.
pub fn write_problem(problem: &Problem, mut out: impl Write) -> io::Result<()> {
    let fixed = problem.items.iter().any(|item| item.fixed.is_some());
    let arenas = problem.items.iter().any(|item| item.arena != 0);
    writeln!(out, "id,lower,upper,size,alignment{}{}", head(arenas, ",arena"), head(fixed, ",offset"))?;
    for item in &problem.items {
        write_item(item, &mut out)?;
        if arenas {
            write!(out, ",{}", item.arena)?;
        }
        match item.fixed {
            Some(place) => writeln!(out, ",{}", place.offset)?,
            None => writeln!(out, "{}", head(fixed, ","))?,
        }
    }
    Ok(())
}

/// Writes the problem with a column for the place of each item: MiniMalloc's `offset`, preceded by `arena` if
/// there are several arenas.
///
/// # Errors
/// Those of the writer.
pub fn write_solution(problem: &Problem, solution: &Solution, mut out: impl Write) -> io::Result<()> {
    let arenas = solution.arenas.len() > 1;
    writeln!(out, "id,lower,upper,size,alignment{},offset", head(arenas, ",arena"))?;
    for (item, place) in problem.items.iter().zip(&solution.placements) {
        write_item(item, &mut out)?;
        if arenas {
            write!(out, ",{}", place.arena)?;
        }
        writeln!(out, ",{}", place.offset)?;
    }
    Ok(())
}

fn head(present: bool, column: &str) -> &str {
    if present { column } else { "" }
}

fn write_item(item: &Item, out: &mut impl Write) -> io::Result<()> {
    let plain = !item.name.contains([',', '"', '\n', '\r']) && item.name.trim() == item.name;
    let name = match plain {
        true => item.name.clone(),
        // A record is one line in this format, so a line break in a name becomes a space.
        false => format!("\"{}\"", item.name.replace('"', "\"\"").replace(['\n', '\r'], " ")),
    };
    write!(out, "{name},{},{},{},{}", item.lower, item.upper, item.size, item.alignment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        read_problem(text).expect_err("malformed").to_string()
    }

    #[test]
    fn reads_columns_in_any_order_and_under_any_of_their_names() {
        let problem =
            read_problem("\u{feff}size,buffer_id,begin,end\r\n\r\n8,\"a,\"\"b\",0,2\r\n").expect("reads");
        assert_eq!(problem.items, [Item::new("a,\"b", 0, 3, 8)]);
    }

    #[test]
    fn written_problems_are_read_back() {
        let items = vec![
            Item::new("plain", 0, 3, 8),
            Item::new("odd, \"name\"", 1, 2, u64::MAX).aligned(256),
            Item::new("held", 1, 2, 4).fixed_at(2, 64),
        ];
        let problem = Problem::new(items);
        let mut text = Vec::new();
        write_problem(&problem, &mut text).expect("writes to memory");
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(read_problem(&text), Ok(problem.clone()));
        let places = [3, 256, 64].map(|offset| Placement { arena: 0, offset });
        let solution = Solution { placements: places.to_vec(), arenas: vec![1, 0, 0] };
        let mut text = Vec::new();
        write_solution(&problem, &solution, &mut text).expect("writes to memory");
        let text = String::from_utf8(text).expect("UTF-8");
        let offsets =
            read_problem(&text).expect("reads").items.iter().map(|item| item.fixed).collect::<Vec<_>>();
        assert_eq!(offsets, places.map(Some));
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let cases = [
            ("", "line 1: the file is empty"),
            ("id,lower,upper\n", "line 1: column 'size' is missing"),
            ("id,lower,size\n", "line 1: column 'upper' is missing"),
            ("id,lower,upper,end,size\n", "line 1: column 'end' appears twice"),
            ("id,lower,upper,size,colour\n", "line 1: unknown column 'colour'"),
            ("id,lower,upper,size\na,0,1,2\nb,0,1\n", "line 3: 3 fields where the header has 4"),
            ("id,lower,upper,size\n\na,0,1,-2\n", "line 3: size is '-2'; a whole number"),
            ("id,lower,upper,size\na,0,1,18446744073709551616\n", "line 2: size is '18446744073709551616'"),
            ("id,lower,end,size\na,0,18446744073709551615,1\n", "line 2: end is 2^64 - 1"),
            ("id,lower,upper,size\n\"a,0,1,2\n", "line 2: a double quote"),
            ("id,lower,upper,size,arena\na,0,1,2,4294967296\n", "line 2: arena 4294967296"),
        ];
        for (text, start) in cases {
            assert!(message(text).starts_with(start), "{text:?}: {}", message(text));
        }
    }
}
