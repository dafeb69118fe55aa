//! The account of a UDP test and where its losses were.

mod account;
mod hostile;
mod locate;
