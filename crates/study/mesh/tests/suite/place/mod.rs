//! Where packets are lost, judged on generated months with a known truth.

mod generator;
mod judge;
mod lies;
