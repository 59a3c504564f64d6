//! Standard output, for the whole program: a reader that has seen enough, such as `head`, is no error and ends nothing.

use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write};
use std::sync::OnceLock;

/// Why nothing more is printed.
static CLOSED: OnceLock<Error> = OnceLock::new();

/// Prints; after a failure nothing more, until [`end`] tells of it.
pub fn print(text: Arguments<'_>) {
    if CLOSED.get().is_none()
        && let Err(error) = std::io::stdout().write_fmt(text)
    {
        // Whoever came first has said it.
        let _ = CLOSED.set(error);
    }
}

/// Writes what is still waiting.
///
/// # Errors
/// What kept the text from being written, such as a full disk, unless the reader went away.
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

/// The standard library's panics where nobody reads.
macro_rules! print {
    ($($text:tt)*) => { $crate::print::print(format_args!($($text)*)) };
}

/// The standard library's panics where nobody reads.
macro_rules! println {
    () => { $crate::print::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::print(format_args!("{}\n", format_args!($($text)*))) };
}
