//! What limits a flow that no test made, by the rules of `longhaul diagnose`.

use longhaul_diagnosis::{Cause, Evidence, Run, TcpFacts, diagnose};

/// The first cause; `None` if nothing is known to limit it.
pub(crate) fn first_cause(facts: Option<TcpFacts>) -> Option<Cause> {
    let evidence = Evidence { runs: vec![Run::Tcp(facts?)], ..Evidence::default() };
    diagnose(&evidence).causes.into_iter().next()
}

/// The same in words.
pub(crate) fn first_cause_in_words(facts: Option<TcpFacts>) -> Option<String> {
    let bound = first_cause(facts)?.bound;
    Some(format!("{}, at {}", bound.code.words(), bound.place_name()))
}
