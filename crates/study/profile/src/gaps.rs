//! Times in which probes told nothing of the path: no loss, no outage, and no neighbours around them.

use std::collections::BTreeMap;

use longhaul_rtt::{Gap, GapReason, within_times};

use crate::probes::Probes;

impl Probes {
    /// Takes `gaps`, in the order of time, out of rows that a log has in its order. Where a clock was set, the rows behind go by the clock
    /// before. Unanswered probes just before a server or path went away, or this host stopped, are left out: whether the path lost them is
    /// not known.
    pub fn leave_out(&mut self, gaps: &[Gap]) {
        let mut waiting = gaps.iter().peekable();
        let (mut set_ns, mut before) = (0_i64, i64::MIN);
        let (mut kept, mut crossed, mut left_out) = (Vec::with_capacity(self.rows.len()), Vec::new(), 0_u64);
        for mut row in std::mem::take(&mut self.rows) {
            let shown_ns = row.sent_ns;
            while let Some(gap) =
                waiting.next_if(|gap| if gap.step_ns < 0 { shown_ns < before } else { shown_ns >= gap.to_ns })
            {
                crossed.push(gap);
                set_ns = set_ns.saturating_add(gap.step_ns);
                row.after_gap = !kept.is_empty();
                if ends_answers(gap.why) {
                    let answered = kept.iter().rposition(|row: &crate::Probe| row.rtt_ns.is_some() || row.after_gap);
                    let keep = answered.map_or(0, |at| at + usize::from(kept[at].rtt_ns.is_some()));
                    left_out += (kept.len() - keep) as u64;
                    kept.truncate(keep);
                }
            }
            before = shown_ns;
            row.sent_ns = within_times(shown_ns.saturating_sub(set_ns));
            kept.push(row);
        }
        self.rows = kept;
        // When a clock was set, and how much by all until then.
        let mut sets: Vec<(i64, i64)> = crossed.iter().map(|gap| (gap.to_ns, gap.step_ns)).collect();
        sets.sort_by_key(|(to_ns, _)| *to_ns);
        let mut all_ns = 0_i64;
        for (_, set_ns) in &mut sets {
            all_ns = all_ns.saturating_add(*set_ns);
            *set_ns = all_ns;
        }
        for change in &mut self.route_changes {
            let until = sets.partition_point(|(to_ns, _)| *to_ns <= change.at_ns);
            let set_ns = until.checked_sub(1).map_or(0, |last| sets[last].1);
            change.at_ns = change.at_ns.saturating_sub(set_ns);
        }
        if !crossed.is_empty() {
            self.notes.push(said(&crossed, left_out));
        }
    }
}

/// Whether probes before it may lack answers for another reason than the path.
fn ends_answers(why: GapReason) -> bool {
    match why {
        GapReason::SessionRenewed | GapReason::ClockStepped | GapReason::Paused => false,
        GapReason::Suspended
        | GapReason::Stalled
        | GapReason::ServerEnded
        | GapReason::Unreachable
        | GapReason::NoRoute
        | GapReason::AddressChanged => true,
    }
}

fn said(gaps: &[&Gap], left_out: u64) -> String {
    let mut reasons = BTreeMap::new();
    gaps.iter().for_each(|gap| *reasons.entry(gap.why.words()).or_insert(0_u32) += 1);
    let reasons: Vec<String> = reasons.iter().map(|(words, times)| format!("{words}: {times}")).collect();
    let seconds = gaps.iter().map(|gap| gap.lasted_ns() as f64).sum::<f64>() / 1e9;
    let mut said = format!(
        "what the path did in {} gaps of the log, {seconds:.1} s in all ({}): they are no loss and no outage",
        gaps.len(),
        reasons.join(", ")
    );
    if left_out > 0 {
        said += &format!(
            "; {left_out} unanswered probes just before them are left out, as the path may not have lost them"
        );
    }
    said
}
