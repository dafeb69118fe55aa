//! Congestion controls: their arithmetic, natively; and in the kernel that they load, work and go.

#![cfg(bpf_programs)]

mod loading;
