//! Standard output of the whole program. A closed pipe, as with `head`, is not an error and does not end the
//! program.

use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write};
use std::sync::OnceLock;

/// The first error, after which nothing more is printed.
static CLOSED: OnceLock<Error> = OnceLock::new();

/// Prints text. After an error, prints nothing more; [`end`] returns the error.
pub fn print(text: Arguments<'_>) {
    if CLOSED.get().is_none()
        && let Err(error) = std::io::stdout().write_fmt(text)
    {
        // Only the first error is stored.
        let _ = CLOSED.set(error);
    }
}

/// Flushes standard output.
///
/// # Errors
/// The first error of writing, such as a full disk, unless it is a broken pipe.
pub fn end() -> Result<(), String> {
    if CLOSED.get().is_none()
        && let Err(error) = std::io::stdout().flush()
    {
        let _ = CLOSED.set(error);
    }
    match CLOSED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

/// Shadows the standard library's macro, which panics on a broken pipe.
macro_rules! print {
    ($($text:tt)*) => { $crate::print::print(format_args!($($text)*)) };
}

/// Shadows the standard library's macro, which panics on a broken pipe.
macro_rules! println {
    () => { $crate::print::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::print(format_args!("{}\n", format_args!($($text)*))) };
}
