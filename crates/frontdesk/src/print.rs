//! Printing for verbs. The macros of the standard library panic when the reader of a pipe has gone away; a verb
//! whose output nobody reads any more ends quietly instead.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};

/// Writes to stdout at once. Ends the process where that is not possible: with 0 if the reader is gone, as in
/// `frontdesk journal | head -1`, with 1 and the reason on stderr otherwise.
pub(crate) fn out(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    err(format_args!("frontdesk: cannot write to stdout: {error}\n"));
    std::process::exit(1);
}

/// Writes to stdout if somebody reads it: a server goes on without a reader.
pub(crate) fn try_out(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_fmt(text).and_then(|()| stdout.flush());
}

/// Writes to stderr; what cannot be said there cannot be said anywhere.
pub(crate) fn err(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// A line on stdout.
macro_rules! out_line {
    ($($text:tt)*) => { $crate::print::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line on stderr.
macro_rules! err_line {
    ($($text:tt)*) => { $crate::print::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {err_line, out_line};
