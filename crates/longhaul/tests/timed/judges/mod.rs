//! Results judged by a forwarder of the tests' own (`common/forwarder`), which wrote down what it did.

mod captures;
mod forwarder;
mod udp;
