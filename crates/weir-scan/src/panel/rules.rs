//! The rules in force: our own and a folder's, compiled once here to see that they are right, and again in each worker.
//!
//! A folder that changes is read again within seconds. Rules that do not compile then change nothing: the old ones stay, and the problem
//! is told until it is solved.

use super::Workers;
use crate::examine::Setup;
use crate::worker::pool::Pool;
use crate::yara::folder::{self, FolderError, Stamp};
use crate::yara::{self, Rules, RulesError};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How often a folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Ruleset {
    state: Arc<Mutex<State>>,
    source: Source,
    scanners: &'static [&'static str],
    task: Option<AbortHandle>,
}

#[derive(Debug, Clone)]
struct State {
    version: Arc<str>,
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
        let (setup, state) = source.load().await?;
        let scanners: &[&str] = match (setup.rules.is_empty(), setup.policy.enabled) {
            (false, false) => &["yara"],
            (true, true) => &["attachments"],
            _ => &["yara", "attachments"],
        };
        Ok((Ruleset { state: Arc::new(Mutex::new(state)), source, scanners, task: None }, setup))
    }

    /// Looks after the folder from now on.
    pub(super) fn watch(mut self, pool: Arc<Pool>) -> Ruleset {
        if self.source.folder.is_some() {
            let (source, state) = (self.source.clone(), self.state.clone());
            self.task = Some(tokio::spawn(follow(source, state, pool)).abort_handle());
        }
        self
    }

    pub(super) fn version(&self) -> Arc<str> {
        lock(&self.state).version.clone()
    }

    /// How many rules there are, and what is wrong with newer ones.
    pub(super) fn health(&self) -> (usize, Option<String>) {
        let state = lock(&self.state);
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

impl Source {
    /// Reading and compiling may take seconds, so not on a thread of the runtime.
    async fn load(&self) -> Result<(Setup, State), RulesetError> {
        let source = self.clone();
        let loaded = tokio::task::spawn_blocking(move || source.load_now());
        loaded.await.unwrap_or(Err(RulesetError::Crashed))
    }

    fn load_now(&self) -> Result<(Setup, State), RulesetError> {
        let mut setup = self.setup.clone();
        let stamp = self.folder.as_deref().map(folder::stamp).transpose()?.unwrap_or_default();
        setup.rules.extend(folder::read(&stamp)?);
        let count = Rules::compile(&setup.rules)?.count();
        let policy = serde_json::to_vec(&(&setup.policy, &setup.limits, &setup.samples)).unwrap_or_default();
        let policy: String = Sha256::digest(&policy)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let version = format!("rules {} policy {policy}", yara::version(&setup.rules)).into();
        Ok((setup, State { version, count, stamp, problem: None }))
    }
}

async fn follow(source: Source, state: Arc<Mutex<State>>, pool: Arc<Pool>) {
    let mut tried: Option<Stamp> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(path) = source.folder.clone() else { return };
        let stamp = match tokio::task::spawn_blocking(move || folder::stamp(&path)).await {
            Ok(Ok(stamp)) => stamp,
            Ok(Err(error)) => {
                note(&state, RulesetError::Folder(error).to_string());
                continue;
            }
            Err(_) => continue,
        };
        if !is_new(&stamp, &mut lock(&state), &mut tried) {
            continue;
        }
        match source.load().await {
            Ok((setup, new)) => match pool.change(&setup) {
                Ok(()) => {
                    tracing::info!(rules = new.count, version = %new.version, "new rules are in force");
                    *lock(&state) = new;
                }
                // Not the rules' fault: they are tried again.
                Err(error) => {
                    tried = None;
                    note(&state, error.to_string());
                }
            },
            Err(error) => note(&state, error.to_string()),
        }
    }
}

/// Whether the folder is neither as it is in force nor as it was when it was last tried: rules that did not compile will not the next time.
fn is_new(stamp: &Stamp, state: &mut State, tried: &mut Option<Stamp>) -> bool {
    if *stamp == state.stamp {
        (state.problem, *tried) = (None, None);
        return false;
    }
    let new = tried.as_ref() != Some(stamp);
    *tried = Some(stamp.clone());
    new
}

fn note(state: &Mutex<State>, problem: String) {
    let mut state = lock(state);
    if state.problem.as_ref() != Some(&problem) {
        tracing::warn!(problem, "the old rules stay in force");
        state.problem = Some(problem);
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rules that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesetError {
    /// The folder.
    #[error("the folder of rules: {0}")]
    Folder(#[from] FolderError),
    /// The rules.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The compiler itself.
    #[error("the compiler of rules crashed")]
    Crashed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_compile_is_left_alone_until_it_changes() {
        let stamp = |length: u64| vec![(PathBuf::from("a.yar"), length, (0, 0, 0))];
        let problem = Some("it does not compile".to_owned());
        let mut state = State { version: "1".into(), count: 1, stamp: stamp(1), problem };
        let mut tried = None;
        assert!(is_new(&stamp(2), &mut state, &mut tried), "a change is tried");
        assert!(!is_new(&stamp(2), &mut state, &mut tried), "once");
        assert!(is_new(&stamp(3), &mut state, &mut tried), "and the next one too");
        assert!(state.problem.is_some());
        assert!(!is_new(&stamp(1), &mut state, &mut tried), "back to what is in force");
        assert!(state.problem.is_none() && is_new(&stamp(3), &mut state, &mut tried));
    }
}
