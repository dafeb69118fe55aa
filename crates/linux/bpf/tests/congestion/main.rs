//! Congestion controls: their arithmetic, natively, against hand-worked values of their papers; and in the kernel that they
//! load, carry data for anybody, and go.

mod anything;
mod bbr3;
mod cubic;
mod delay_based;
mod flow;
mod loss_based;
mod models;
mod native;
mod papers;
mod paths;
mod rules;
mod slow_start;
mod traces;
// Without clang at build time there is nothing to load.
#[cfg(bpf_programs)]
mod loading;
