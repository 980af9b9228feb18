//! The rules in use: our own, those of a folder, and those that people added. They are compiled once here to check them, and again in
//! each worker.
//!
//! A folder that changes is read again within seconds. Rules that people add are in use when [`Ruleset::adopt`] returns. If new rules
//! do not compile, the old ones stay in use, and the problem is reported until it is solved.

use super::settings::Workers;
use crate::examine::Setup;
use crate::made::Made;
use crate::worker::pool::Pool;
use crate::yara::folder::{self, Stamp};
use crate::yara::{self, RuleFile, Rules, RulesetError};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use weir_foundation::supervision;

/// How often a folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Ruleset {
    inner: Arc<Inner>,
    scanners: &'static [&'static str],
    task: Option<AbortHandle>,
}

#[derive(Debug)]
struct Inner {
    source: Source,
    state: Mutex<State>,
    /// The rules that people made and that are in use. The lock is held while rules are changed, so that two changes never overlap.
    made: tokio::sync::Mutex<Made>,
}

#[derive(Debug, Clone)]
struct State {
    version: Arc<str>,
    /// The key under which answers are remembered: the version, and how often the rules have changed. So the answer of a scan that was
    /// under way during a change is never used again, not even if the rules are changed back one day.
    key: Arc<str>,
    changes: u64,
    count: usize,
    stamp: Stamp,
    problem: Option<String>,
}

/// Where the rules come from.
#[derive(Debug, Clone)]
struct Source {
    setup: Setup,
    folder: Option<PathBuf>,
}

impl Ruleset {
    /// Reads and compiles.
    pub(super) async fn load(workers: &Workers) -> Result<(Ruleset, Setup), RulesetError> {
        let source = Source { setup: workers.setup.clone(), folder: workers.folder.clone() };
        let Loaded { setup, count, stamp } = source.load(Made::default()).await?;
        let scanners: &[&str] = match (setup.rules.is_empty(), setup.policy.enabled) {
            (false, false) => &["yara"],
            (true, true) => &["attachments"],
            _ => &["yara", "attachments"],
        };
        let mut state = State { version: "".into(), key: "".into(), changes: 0, count, stamp, problem: None };
        state.now(&setup);
        let inner = Inner { source, state: Mutex::new(state), made: tokio::sync::Mutex::default() };
        Ok((Ruleset { inner: Arc::new(inner), scanners, task: None }, setup))
    }

    /// Looks after the folder from now on.
    pub(super) fn watch(mut self, pool: Arc<Pool>) -> Ruleset {
        if self.inner.source.folder.is_some() {
            self.task = Some(supervision::spawn("scan rules", follow(self.inner.clone(), pool)).abort_handle());
        }
        self
    }

    /// Uses these rules that people made from now on, instead of the former ones. The rules of the folder stay as they were last read.
    pub(super) async fn adopt(&self, pool: &Pool, made: &Made) -> Result<(), RulesetError> {
        let mut current = self.inner.made.lock().await;
        if *current == *made {
            return Ok(());
        }
        let mut setup = pool.setup()?;
        let others = current.rules.clone();
        setup.rules.retain(|file| !others.contains(file));
        setup.rules.extend(made.rules.iter().cloned());
        setup.blocked.clone_from(&made.blocked);
        let counted = match made.rules == current.rules {
            true => None,
            false => Some(count(setup.rules.clone()).await?),
        };
        pool.change(&setup)?;
        let mut state = self.inner.state();
        state.count = counted.unwrap_or(state.count);
        state.now(&setup);
        tracing::info!(rules = state.count, blocked = setup.blocked.len(), version = %state.version, "new rules are in force");
        *current = made.clone();
        Ok(())
    }

    /// Which rules, policy and blocked contents are in force.
    pub(super) fn version(&self) -> Arc<str> {
        self.inner.state().version.clone()
    }

    /// Under which answers are remembered.
    pub(super) fn key(&self) -> Arc<str> {
        self.inner.state().key.clone()
    }

    /// How many rules there are, and what is wrong with newer ones.
    pub(super) fn health(&self) -> (usize, Option<String>) {
        let state = self.inner.state();
        (state.count, state.problem.clone())
    }

    /// Whose findings come from workers.
    pub(super) fn scanners(&self) -> &'static [&'static str] {
        self.scanners
    }
}

impl Drop for Ruleset {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, problem: String) {
        let mut state = self.state();
        if state.problem.as_ref() != Some(&problem) {
            tracing::warn!(problem, "the old rules stay in force");
            state.problem = Some(problem);
        }
    }
}

impl State {
    /// This setup is in force from now on.
    fn now(&mut self, setup: &Setup) {
        let short =
            |bytes: &[u8]| Sha256::digest(bytes)[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let policy = short(&serde_json::to_vec(&(&setup.policy, &setup.limits, &setup.samples)).unwrap_or_default());
        let blocked = match setup.blocked.len() {
            0 => String::new(),
            _ => format!(" blocked {}", short(&serde_json::to_vec(&setup.blocked).unwrap_or_default())),
        };
        self.changes += 1;
        self.version = format!("rules {} policy {policy}{blocked}", yara::version(&setup.rules)).into();
        self.key = format!("{} {}", self.version, self.changes).into();
    }
}

/// Rules that were read and compile.
struct Loaded {
    setup: Setup,
    count: usize,
    stamp: Stamp,
}

impl Source {
    /// Reading and compiling may take seconds, so not on a thread of the runtime.
    async fn load(&self, made: Made) -> Result<Loaded, RulesetError> {
        let source = self.clone();
        let loaded = tokio::task::spawn_blocking(move || source.load_now(made));
        loaded.await.unwrap_or(Err(RulesetError::Crashed))
    }

    fn load_now(&self, made: Made) -> Result<Loaded, RulesetError> {
        let mut setup = self.setup.clone();
        let stamp = self.folder.as_deref().map(folder::stamp).transpose()?.unwrap_or_default();
        setup.rules.extend(folder::read(&stamp)?);
        setup.rules.extend(made.rules);
        setup.blocked = made.blocked;
        let count = Rules::compile(&setup.rules)?.count();
        Ok(Loaded { setup, count, stamp })
    }
}

async fn count(rules: Vec<RuleFile>) -> Result<usize, RulesetError> {
    let compiled = tokio::task::spawn_blocking(move || Ok(Rules::compile(&rules)?.count()));
    compiled.await.unwrap_or(Err(RulesetError::Crashed))
}

async fn follow(inner: Arc<Inner>, pool: Arc<Pool>) {
    let mut tried: Option<Stamp> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(path) = inner.source.folder.clone() else { return };
        let stamp = match tokio::task::spawn_blocking(move || folder::stamp(&path)).await {
            Ok(Ok(stamp)) => stamp,
            Ok(Err(error)) => {
                inner.note(RulesetError::Folder(error).to_string());
                continue;
            }
            Err(_) => continue,
        };
        if !is_new(&stamp, &mut inner.state(), &mut tried) {
            continue;
        }
        let made = inner.made.lock().await;
        match inner.source.load(made.clone()).await {
            Ok(Loaded { setup, count, stamp }) => match pool.change(&setup) {
                Ok(()) => {
                    let mut state = inner.state();
                    (state.count, state.stamp, state.problem) = (count, stamp, None);
                    state.now(&setup);
                    tracing::info!(rules = count, version = %state.version, "new rules are in force");
                }
                // Not the rules' fault: they are tried again.
                Err(error) => {
                    tried = None;
                    inner.note(error.to_string());
                }
            },
            Err(error) => inner.note(error.to_string()),
        }
    }
}

/// Whether the folder differs both from what is in use and from what was tried last: rules that did not compile then would not compile now.
fn is_new(stamp: &Stamp, state: &mut State, tried: &mut Option<Stamp>) -> bool {
    if *stamp == state.stamp {
        (state.problem, *tried) = (None, None);
        return false;
    }
    let new = tried.as_ref() != Some(stamp);
    *tried = Some(stamp.clone());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_compile_is_left_alone_until_it_changes() {
        let stamp = |length: u64| vec![(PathBuf::from("a.yar"), length, (0, 0, 0))];
        let problem = Some("it does not compile".to_owned());
        let mut state = State { version: "1".into(), key: "1".into(), changes: 1, count: 1, stamp: stamp(1), problem };
        let mut tried = None;
        assert!(is_new(&stamp(2), &mut state, &mut tried), "a change is tried");
        assert!(!is_new(&stamp(2), &mut state, &mut tried), "once");
        assert!(is_new(&stamp(3), &mut state, &mut tried), "and the next one too");
        assert!(state.problem.is_some());
        assert!(!is_new(&stamp(1), &mut state, &mut tried), "back to what is in force");
        assert!(state.problem.is_none() && is_new(&stamp(3), &mut state, &mut tried));
    }
}
