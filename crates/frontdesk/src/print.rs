//! Output of commands. The macros of the standard library panic when the reader of a pipe has closed it; a command
//! should end quietly instead.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};

/// Writes to stdout and flushes. On failure the process exits: with 0 if the reader has closed the pipe, as in
/// `frontdesk journal | head -1`, otherwise with 1 and the reason on stderr.
pub(crate) fn out(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    err(format_args!("frontdesk: cannot write to stdout: {error}\n"));
    std::process::exit(1);
}

/// Writes to stdout and ignores errors: a server continues without a reader.
pub(crate) fn try_out(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_fmt(text).and_then(|()| stdout.flush());
}

/// Writes to stderr and ignores errors, because there is nowhere else to report them.
pub(crate) fn err(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Prints a line to stdout.
macro_rules! out_line {
    ($($text:tt)*) => { $crate::print::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to stderr.
macro_rules! err_line {
    ($($text:tt)*) => { $crate::print::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {err_line, out_line};
