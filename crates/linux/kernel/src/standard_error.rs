//! Standard error, which may be a file on a full disk or a closed pipe. Then what is said is lost and the program goes on: the standard library's
//! macros end the thread.

use std::fmt::Arguments;
use std::io::{self, Write};

#[doc(hidden)]
pub fn write(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Writes a line on standard error, if that takes it; arguments as of `println!`.
#[macro_export]
macro_rules! stderr_line {
    () => { $crate::standard_error::write(format_args!("\n")) };
    ($($argument:tt)+) => { $crate::standard_error::write(format_args!("{}\n", format_args!($($argument)+))) };
}

/// Writes text on standard error, if that takes it; arguments as of `print!`.
#[macro_export]
macro_rules! stderr_text {
    ($($argument:tt)+) => { $crate::standard_error::write(format_args!($($argument)+)) };
}
