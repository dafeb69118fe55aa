//! Changing settings, keeping them, putting them back, and saying how they are.
//!
//! Settings are put back in the order in which they were changed: the default queueing discipline comes before those that follow it.

use std::io;

use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_units::Nanos;

use crate::drop_ins;
use crate::error::TuneError;
use crate::outcome::{Now, Outcome, Owner, PutBack, Refused, Status};
use crate::place::HostSetting;
use crate::plan::Change;
use crate::setting;
use crate::state::{DropIn, Saved, State, Store, boot_id};

/// So long what is put back waits for the end of a test that has changed the same.
const TESTS_PATIENCE: Nanos = Nanos::from_secs(10);

/// The process that waits for a word, where none does any more.
const NOBODY: u32 = 0;

/// How changed settings shall stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// They are put back unless somebody confirms them: the caller sees to that.
    pub unless_confirmed: bool,
    /// They outlive a start of the machine once they are kept.
    pub persist: bool,
}

/// Changes settings, in their order, and returns those that it did not change, because the kernel refused, somebody else has set them since the
/// plan, or the command was asked to end ([`Store::with_give_up`]). `step` is called before the first change and after each.
///
/// # Errors
/// [`TuneError::Pending`], [`TuneError::Earlier`], [`TuneError::NotFirst`], [`TuneError::Store`], [`TuneError::DropIn`]; [`TuneError::Refused`] where none
/// is changed; [`TuneError::LeftChanged`] where some are that nobody puts back by himself.
pub fn apply<'a>(
    store: &Store,
    changes: impl Iterator<Item = &'a Change>,
    terms: Terms,
    step: &mut dyn FnMut(),
) -> Result<Vec<Refused>, TuneError> {
    if terms.persist && !store.is_first {
        return Err(TuneError::NotFirst);
    }
    let (store, _lock) = &store.lock()?;
    let earlier = load(store)?;
    let boot_id = boot_id()?;
    if earlier.as_ref().is_some_and(|state| state.boot_id == boot_id && !(state.confirmed && state.is_complete())) {
        return Err(TuneError::Pending);
    }
    if terms.unless_confirmed && earlier.is_some() {
        return Err(TuneError::Earlier);
    }
    let mut state = State::new(boot_id);
    state.persist = terms.persist;
    // What is changed already comes first, as done.
    if let Some(earlier) = earlier {
        state.persist |= earlier.persist;
        state.drop_ins = earlier.drop_ins;
        let still = |saved: &Saved| setting::read(&saved.place).is_ok_and(|now| saved.ours.contains(&now));
        state.settings.extend(earlier.settings.into_iter().filter(still));
    }
    let kept = state.settings.clone();
    let changes: Vec<&Change> = changes.collect();
    let mut refused: Vec<Refused> = Vec::new();
    for change in &changes {
        let old = state.settings.iter().position(|saved| saved.place == change.place);
        let new = || Saved {
            place: change.place.clone(),
            before: change.now.clone(),
            given: String::new(),
            ours: Vec::new(),
        };
        let mut saved = old.map_or_else(new, |at| state.settings[at].clone());
        // The plan is of a moment ago.
        if let Err(why) = not_by_another(&saved) {
            refused.push(Refused { place: saved.place, value: change.then.clone(), why });
            continue;
        }
        saved.given.clone_from(&change.then);
        saved.ours.push(change.then.clone());
        saved.ours.extend(setting::read_later(&change.place, &change.then));
        if let Some(at) = old {
            state.settings.remove(at);
        }
        state.settings.push(saved);
    }
    if state.settings.is_empty() {
        return refused.into_iter().next().map_or_else(|| Ok(Vec::new()), |first| Err(none_changed(first)));
    }
    no_drop_in_of_others(store, &state)?;
    state.done = state.settings.len() - (changes.len() - refused.len());
    store.save(&state)?;
    step();
    while state.done < state.settings.len() {
        // Each may take a second where other users have very many sockets. Nobody will confirm these: they go back.
        if terms.unless_confirmed && store.gives_up() {
            let left = state.settings.split_off(state.done);
            let why = || "the command was asked to end before".to_owned();
            refused.extend(left.into_iter().map(|one| Refused { place: one.place, value: one.given, why: why() }));
            store.save(&state)?;
            break;
        }
        let at = state.done;
        let saved = &state.settings[at];
        let then = saved.given.clone();
        // What a test has changed for its time is not what was before. One change may have brought this one with it.
        let claim = setting::claim(&saved.place, Nanos::ZERO);
        let free = claim.as_ref().map_err(String::clone).and_then(|_| not_by_another(saved));
        let is_left = free.is_err();
        match free.and_then(|()| setting::write(&saved.place, &then)) {
            Ok(()) => {
                // A driver may round.
                if let Ok(now) = setting::read(&saved.place)
                    && now != then
                {
                    state.settings[at].ours.push(now);
                }
                state.done = at + 1;
            }
            Err(why) => {
                refused.push(Refused { place: saved.place.clone(), value: then.clone(), why });
                let saved = state.settings.remove(at);
                match kept.iter().find(|one| one.place == saved.place) {
                    Some(earlier) => {
                        state.settings.insert(at, earlier.clone());
                        state.done = at + 1;
                    }
                    None if is_left => {}
                    // It may have come halfway. The claim is held.
                    None => _ = put_one_back(&saved, true),
                }
            }
        }
        step();
        store.save(&state).map_err(|error| left_changed(error, terms, state.done))?;
    }
    let done = state.done;
    let keep = |state| keep(store, state).map_err(|error| left_changed(error, terms, done));
    if refused.len() == changes.len() && !refused.is_empty() {
        if state.settings.is_empty() {
            store.remove()?;
        } else {
            keep(state)?;
        }
        return Err(none_changed(refused.remove(0)));
    }
    if !terms.unless_confirmed {
        keep(state)?;
    }
    Ok(refused)
}

/// What failed when so many settings were `done`.
fn left_changed(error: TuneError, terms: Terms, done: usize) -> TuneError {
    match error {
        TuneError::Store { path, source } if done > 0 && !terms.unless_confirmed => {
            TuneError::LeftChanged { path, source }
        }
        other => other,
    }
}

/// Nobody else has set it since the plan was made, and it is still there.
///
/// # Errors
/// Somebody has, or it is not, in words.
fn not_by_another(saved: &Saved) -> Result<(), String> {
    match setting::read(&saved.place) {
        Ok(now) if setting::is_gone(&now) => Err(format!("{now}: make the plan again")),
        Ok(now) if now != saved.before && !saved.ours.contains(&now) => {
            Err(format!("somebody else set it to {now} since the plan; it is not changed: make the plan again"))
        }
        _ => Ok(()),
    }
}

fn none_changed(first: Refused) -> TuneError {
    let Refused { place, value, why } = first;
    TuneError::Refused { place, value, why }
}

/// The state, if its files are such as longhaul writes.
fn load(store: &Store) -> Result<Option<State>, TuneError> {
    let state = store.load()?;
    let drop_ins = state.iter().flat_map(|state| &state.drop_ins);
    let unknown = drop_ins.map(|one| &one.path).find(|path| !drop_ins::is_known(&store.etc, path));
    if let Some(path) = unknown {
        let why = format!("{} is not a file that longhaul writes", path.display());
        return Err(TuneError::Broken { path: store.file(), why });
    }
    Ok(state)
}

/// Nobody else wrote or changed a drop-in that keeping the settings of `state` would replace.
fn no_drop_in_of_others(store: &Store, state: &State) -> Result<(), TuneError> {
    let settings = if state.persist { &state.settings[..] } else { &[] };
    for (path, _) in drop_ins::texts(&store.etc, settings) {
        let old = state.drop_ins.iter().find(|one| one.path == path).cloned();
        let drop_in = old.unwrap_or_else(|| DropIn { path: path.clone(), ours: Vec::new() });
        if drop_ins::now(&drop_in).owner == Owner::Other {
            let source = io::Error::other("somebody else wrote or changed it: move it away first");
            return Err(TuneError::DropIn { path, source });
        }
    }
    Ok(())
}

/// Keeps the settings, and writes the drop-ins that were asked for.
fn keep(store: &Store, mut state: State) -> Result<State, TuneError> {
    // Somebody may have since the settings were changed.
    no_drop_in_of_others(store, &state)?;
    if state.persist {
        for (path, text) in drop_ins::texts(&store.etc, &state.settings) {
            let old = state.drop_ins.iter().position(|one| one.path == path);
            let at = old.unwrap_or_else(|| {
                state.drop_ins.push(DropIn { path: path.clone(), ours: Vec::new() });
                state.drop_ins.len() - 1
            });
            state.drop_ins[at].ours.push(text.clone());
            store.save(&state)?;
            drop_ins::write(&path, &text).map_err(|source| TuneError::DropIn { path, source })?;
        }
    }
    state.confirmed = true;
    store.save(&state)?;
    Ok(state)
}

/// Keeps settings that wait to be confirmed. Gives the drop-ins that make them last.
///
/// # Errors
/// [`TuneError::Nothing`]; [`TuneError::Pending`] where the command was killed while it changed them; [`TuneError::Store`], [`TuneError::DropIn`].
pub fn confirm(store: &Store) -> Result<Vec<String>, TuneError> {
    let (store, _lock) = &store.lock()?;
    let state = load(store)?.ok_or(TuneError::Nothing)?;
    if state.boot_id != boot_id()? || !state.is_complete() {
        return Err(TuneError::Pending);
    }
    let state = keep(store, state)?;
    Ok(state.drop_ins.iter().map(|one| one.path.display().to_string()).collect())
}

/// Puts settings back, and removes the drop-ins. `step` is called after each.
///
/// # Errors
/// [`TuneError::Nothing`], [`TuneError::Store`]. What could not be put back is in the result.
pub fn undo(store: &Store, step: &mut dyn FnMut()) -> Result<Vec<PutBack>, TuneError> {
    let (store, _lock) = &store.lock()?;
    let state = load(store)?.ok_or(TuneError::Nothing)?;
    put_back(store, state, TESTS_PATIENCE, step)
}

/// Puts settings back that the process `pid` changed and nobody confirmed; `None` where there are none. What a test holds is tried once.
///
/// # Errors
/// [`TuneError::Store`].
pub fn undo_unconfirmed(store: &Store, pid: u32) -> Result<Option<Vec<PutBack>>, TuneError> {
    let (store, _lock) = &store.lock()?;
    match load(store)? {
        Some(state) if state.pid == pid && !state.confirmed => {
            put_back(store, state, Nanos::ZERO, &mut || {}).map(Some)
        }
        _ => Ok(None),
    }
}

fn put_back(
    store: &Store,
    mut state: State,
    patience: Nanos,
    step: &mut dyn FnMut(),
) -> Result<Vec<PutBack>, TuneError> {
    let mut all = Vec::new();
    // First: after a start of the machine in between they would set it again.
    for drop_in in &state.drop_ins {
        let (outcome, why) = drop_ins::remove(drop_in);
        let file = Some(drop_in.path.display().to_string());
        all.push(PutBack { place: None, file, outcome, before: None, now: None, why, is_held: false });
        step();
    }
    state.drop_ins.retain(|one| failed(&all, None, Some(&one.path.display().to_string())));
    let until = monotonic().saturating_add(patience);
    let partial = state.settings.get(state.done).map(|saved| saved.place.clone());
    for (at, saved) in state.settings.iter().enumerate() {
        // The one that was being changed may have any value that the kernel made of it; but these are changed at once.
        let is_whole = matches!(
            saved.place,
            HostSetting::Sysctl { .. } | HostSetting::Feature { .. } | HostSetting::QueueLength { .. }
        );
        all.push(match setting::claim(&saved.place, Nanos(until.0.saturating_sub(monotonic().0))) {
            Ok(_claim) => put_one_back(saved, at == state.done && !is_whole),
            Err(why) => PutBack {
                place: Some(saved.place.clone()),
                file: None,
                outcome: Outcome::Failed,
                before: Some(saved.before.clone()),
                now: None,
                why: Some(why),
                is_held: true,
            },
        });
        step();
    }
    state.settings.retain(|one| failed(&all, Some(&one.place), None));
    if state.settings.is_empty() && state.drop_ins.is_empty() {
        store.remove()?;
    } else {
        // What is left can be tried again: by nobody who waits, but for what a test holds.
        let is_held = all.iter().any(|one| one.is_held);
        let at = partial.and_then(|place| state.settings.iter().position(|one| one.place == place));
        state.done = at.filter(|_| is_held).unwrap_or(state.settings.len());
        if !state.confirmed && !is_held {
            (state.confirmed, state.pid) = (true, NOBODY);
        }
        store.save(&state)?;
    }
    Ok(all)
}

fn failed(all: &[PutBack], place: Option<&HostSetting>, file: Option<&str>) -> bool {
    all.iter().any(|one| one.outcome == Outcome::Failed && one.place.as_ref() == place && one.file.as_deref() == file)
}

fn put_one_back(saved: &Saved, may_be_partial: bool) -> PutBack {
    let result = |outcome, now: Option<String>, why: Option<String>| PutBack {
        place: Some(saved.place.clone()),
        file: None,
        outcome,
        before: Some(saved.before.clone()),
        now,
        why,
        is_held: false,
    };
    let now = match setting::read(&saved.place) {
        Ok(now) => now,
        Err(why) => return result(Outcome::Failed, None, Some(why)),
    };
    if now == saved.before {
        return result(Outcome::WasBefore, Some(now), None);
    }
    if setting::is_gone(&now) || !saved.ours.contains(&now) && !may_be_partial {
        return result(Outcome::Left, Some(now), None);
    }
    if let Err(why) = setting::write(&saved.place, &saved.before) {
        return result(Outcome::Failed, Some(now), Some(why));
    }
    match setting::read(&saved.place) {
        Ok(now) if now == saved.before => result(Outcome::PutBack, Some(now), None),
        Ok(now) => {
            let why = format!("the kernel holds {now} instead of {}", saved.before);
            result(Outcome::Failed, Some(now), Some(why))
        }
        Err(why) => result(Outcome::Failed, None, Some(why)),
    }
}

/// How the settings are that were changed; `None` where none are.
///
/// # Errors
/// [`TuneError::Store`], [`TuneError::Broken`], [`TuneError::Boot`].
pub fn status(store: &Store) -> Result<Option<Status>, TuneError> {
    let Some(state) = load(store)? else { return Ok(None) };
    let settings = state.settings.iter().map(|saved| {
        let now = setting::read(&saved.place).ok();
        let owner = match &now {
            Some(now) if *now == saved.before => Owner::Before,
            Some(now) if saved.ours.contains(now) => Owner::Longhaul,
            _ => Owner::Other,
        };
        let given = saved.given.clone();
        Now { place: saved.place.clone(), before: saved.before.clone(), given, now, owner }
    });
    Ok(Some(Status {
        changed_at_realtime_ns: state.changed_at_realtime_ns.min(realtime().0),
        rebooted: state.boot_id != boot_id()?,
        is_partial: !state.is_complete(),
        confirmed: state.confirmed,
        pid: state.pid,
        settings: settings.collect(),
        drop_ins: state.drop_ins.iter().map(drop_ins::now).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The command was killed while it changed it, and the interface went then. A plan of before cannot be followed either.
    #[test]
    fn what_is_gone_is_left_and_nobody_is_said_to_have_set_it() {
        let place = HostSetting::RootQdisc { link: "longhaul-none0".into() };
        let saved = Saved { place, before: "none".into(), given: "fq".into(), ours: vec!["fq".into()] };
        let left = put_one_back(&saved, true);
        assert_eq!((left.outcome, left.now.as_deref()), (Outcome::Left, Some("no such interface")));
        assert_eq!(not_by_another(&saved).unwrap_err(), "no such interface: make the plan again");
    }

    /// It has the name of a drop-in of longhaul's, and another text.
    #[test]
    fn a_drop_in_of_somebody_else_is_not_replaced() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-theirs-{}", std::process::id()));
        let store = Store::open(&folder.join("states")).unwrap().with_etc(&folder.join("etc"));
        let place = HostSetting::Sysctl { key: "net.ipv4.tcp_no_metrics_save".into() };
        let saved = Saved { place, before: "0".into(), given: "1".into(), ours: vec!["1".into()] };
        let mut state = State::new(boot_id().unwrap());
        (state.persist, state.settings) = (true, vec![saved]);
        let (path, _) = drop_ins::texts(&store.etc, &state.settings).remove(0);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "theirs").unwrap();
        {
            let (locked, _lock) = &store.lock().unwrap();
            let refused = keep(locked, state.clone()).unwrap_err().to_string();
            assert!(refused.contains("move it away"), "{refused}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
            assert!(load(locked).unwrap().is_none(), "nothing is kept");
            fs::remove_file(&path).unwrap();
            keep(locked, state).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap().contains("tcp_no_metrics_save"));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Who could write the state would have any file removed whose text he knows.
    #[test]
    fn a_state_has_no_file_removed_that_longhaul_does_not_write() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-drop-ins-{}", std::process::id()));
        let store = Store::open(&folder.join("states")).unwrap().with_etc(&folder.join("etc"));
        let theirs = folder.join("etc/sysctl.d/10-site.conf");
        fs::create_dir_all(folder.join("etc/sysctl.d")).unwrap();
        fs::write(&theirs, "theirs").unwrap();
        {
            let (locked, _lock) = store.lock().unwrap();
            let mut state = State::new(boot_id().unwrap());
            state.drop_ins.push(DropIn { path: theirs.clone(), ours: vec!["theirs".into()] });
            locked.save(&state).unwrap();
        }
        let refused = undo(&store, &mut || {}).unwrap_err().to_string();
        assert!(refused.contains("10-site.conf is not a file that longhaul writes"), "{refused}");
        assert!(matches!(status(&store), Err(TuneError::Broken { .. })));
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
        fs::remove_dir_all(&folder).unwrap();
    }
}
