//! Plans and changed settings as text.

use std::fmt::Write;

use longhaul_tune::{Outcome, Owner, Plan, PutBack, Status, Target, Unread, is_gone};
use longhaul_units::{BitRate, Bytes, Nanos};

/// Characters of a line.
const WIDTH: usize = 110;

/// `words` behind `label`, in lines of at most [`WIDTH`] characters.
fn paragraph(text: &mut String, label: &str, words: &str) {
    let indent = label.chars().count();
    let mut line = label.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            line = " ".repeat(indent);
            is_empty = true;
        }
        line += if is_empty { "" } else { " " };
        line += word;
        is_empty = false;
    }
    let _ = writeln!(text, "{line}");
}

/// The plan for `target`.
pub(super) fn plan(target: &Target, plan: &Plan, unread: &[Unread], apply: bool) -> String {
    let mut text = format!(
        "target    {} over {}, this host as {}: {} in flight\n",
        BitRate(target.rate_bps),
        Nanos(target.rtt_ns),
        target.role,
        Bytes(plan.in_flight_bytes).rounded()
    );
    if let Some(why) = &plan.network_is_the_bound {
        paragraph(&mut text, "network   ", why);
    }
    for change in &plan.changes {
        let _ = writeln!(text, "\n{}: {} → {}", change.place, change.now, change.then);
        paragraph(&mut text, "  why     ", &change.why);
        paragraph(&mut text, "  source  ", &change.source);
        if let Some(bytes) = change.memory_bytes {
            let of_all =
                plan.tcp_memory_bytes.map(|all| format!(", of {} for all of TCP (tcp_mem)", Bytes(all).rounded()));
            let most = format!("up to {} a connection{}", Bytes(bytes).rounded(), of_all.unwrap_or_default());
            paragraph(&mut text, "  memory  ", &most);
        }
        paragraph(&mut text, "  touches ", &change.touches);
        if let Some(why) = &change.blocked {
            paragraph(&mut text, "  blocked ", why);
        }
    }
    if plan.changes.is_empty() {
        text += "\nno setting of this host needs to change\n";
    }
    if !plan.kept.is_empty() {
        let kept: Vec<String> = plan.kept.iter().map(|kept| format!("{} {}", kept.place, kept.now)).collect();
        text.push('\n');
        paragraph(&mut text, "right     ", &kept.join(", "));
    }
    for by_hand in &plan.by_hand {
        let _ = writeln!(text, "\nby hand   {}", by_hand.command);
        paragraph(&mut text, "  why     ", &by_hand.why);
        paragraph(&mut text, "  source  ", &by_hand.source);
    }
    if !plan.elsewhere.is_empty() {
        text.push('\n');
    }
    for line in &plan.elsewhere {
        paragraph(&mut text, "elsewhere ", line);
    }
    for unread in unread {
        paragraph(&mut text, "not read  ", &format!("{}: {}", unread.what, unread.reason));
    }
    if !apply && plan.possible().next().is_some() {
        text += "\nnothing is changed; --apply --for 60s changes these settings and puts them back unless you confirm them\n";
    }
    text
}

/// What became of settings, one a line, and what to do about those that could not be put back.
pub(super) fn put_back(all: &[PutBack]) -> String {
    let mut text = String::new();
    for one in all {
        let what = match (&one.place, &one.file) {
            (Some(place), _) => place.to_string(),
            (None, file) => file.clone().unwrap_or_default(),
        };
        let before = one.before.as_deref().unwrap_or("not there");
        let now = one.now.as_deref().unwrap_or("another text");
        let _ = match one.outcome {
            Outcome::PutBack if one.place.is_none() => writeln!(text, "{what}: removed"),
            Outcome::PutBack => writeln!(text, "{what}: put back to {before}"),
            Outcome::WasBefore => writeln!(text, "{what}: was {before} already"),
            Outcome::Left if is_gone(now) => writeln!(text, "{what}: {now}: there is nothing to put back"),
            Outcome::Left => {
                writeln!(text, "{what}: left at {now}, as somebody else has changed it since (before: {before})")
            }
            Outcome::Failed => {
                writeln!(text, "{what}: cannot be put back to {before}: {}", one.why.as_deref().unwrap_or_default())
            }
        };
    }
    if all.iter().any(|one| one.outcome == Outcome::Failed && !one.is_held) {
        text += "what cannot be put back is remembered: `longhaul tune undo` tries it again\n";
    }
    text
}

/// Changed settings, one a line.
pub(super) fn status(status: Option<&Status>) -> String {
    let Some(status) = status else { return "no settings are changed here\n".into() };
    let since = jiff::Timestamp::from_nanosecond(i128::from(status.changed_at_realtime_ns)).unwrap_or_default();
    let how = match (status.rebooted, status.is_partial, status.confirmed) {
        (true, ..) => "the machine was started again since: only drop-ins gave settings again",
        (_, true, _) => "the command was killed, or changes them at this moment: `longhaul tune undo` puts them back",
        _ if status.pid == 0 => "they could not be put back: `longhaul tune undo` tries it again",
        (_, _, true) => "kept; `longhaul tune undo` puts them back",
        (..) => "not confirmed: `longhaul tune confirm` keeps them, `longhaul tune undo` puts them back",
    };
    let by = if status.pid == 0 { String::new() } else { format!(" by process {}", status.pid) };
    let mut text = format!("changed {since:.0}{by}; {how}\n");
    for one in &status.settings {
        let now = match (one.owner, &one.now) {
            (Owner::Longhaul, _) => String::new(),
            (Owner::Before, _) => "; now as before".into(),
            (Owner::Other, Some(now)) if is_gone(now) => format!("; {now} now"),
            (Owner::Other, Some(now)) => format!("; now {now}, by somebody else"),
            (Owner::Other, None) => "; cannot be read now".into(),
        };
        let _ = writeln!(text, "{}: {} → {}{now}", one.place, one.before, one.given);
    }
    for one in &status.drop_ins {
        let whose = match one.owner {
            Owner::Longhaul => "",
            Owner::Before => ", which is not there",
            Owner::Other => ", which somebody else changed",
        };
        let _ = writeln!(text, "drop-in {}{whose}", one.file);
    }
    text
}

#[cfg(test)]
mod tests {
    use longhaul_tune::HostSetting;

    use super::*;

    #[test]
    fn nobody_is_said_to_have_changed_what_is_gone() {
        let left = |now: &str| PutBack {
            place: Some(HostSetting::QueueLength { link: "eth1".into() }),
            file: None,
            outcome: Outcome::Left,
            before: Some("1000".into()),
            now: Some(now.into()),
            why: None,
            is_held: false,
        };
        let by_another = put_back(&[left("500")]);
        assert!(by_another.contains(": left at 500, as somebody else has changed it since"), "{by_another}");
        let gone = put_back(&[left("no such interface")]);
        assert!(gone.ends_with(": no such interface: there is nothing to put back\n"), "{gone}");
    }
}
