//! The long-lived tasks of the lab, each with a name for the supervisor.
//!
//! The code that starts the lab gets them as futures that are not running yet. None of them ends in normal operation; if one ends, it has
//! panicked, or something that it needs is gone. What they spawn themselves ends with them.

use std::future::Future;
use std::pin::Pin;
use tokio::task::{AbortHandle, JoinSet};

/// A task that runs as long as the lab does.
pub struct Task {
    pub name: &'static str,
    pub future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Task {
    pub fn new(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Task {
        Task { name, future: Box::pin(future) }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Task").field(&self.name).finish()
    }
}

/// Tasks that were started. When this is dropped they are aborted.
#[derive(Debug, Default)]
pub struct Running {
    set: JoinSet<()>,
    /// In the order of their start.
    started: Vec<(&'static str, AbortHandle)>,
}

/// A task that has ended, although no task should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask {
    pub name: &'static str,
    /// The message of its panic, if it panicked.
    pub panic: Option<String>,
}

impl Running {
    /// Begins them in this order.
    pub fn start(tasks: Vec<Task>) -> Running {
        let mut running = Running::default();
        for Task { name, future } in tasks {
            running.started.push((name, running.set.spawn(future)));
        }
        running
    }

    /// Returns when one of them has ended; none if there are none.
    pub async fn ended(&mut self) -> Option<EndedTask> {
        let ended = self.set.join_next_with_id().await?;
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let name = self.started.iter().find(|(_, task)| task.id() == id).map_or("unknown", |(name, _)| name);
        Some(EndedTask { name, panic: ended.err().map(|error| error.to_string()) })
    }

    /// Stops them in the opposite order, each before the next, and returns when all have ended.
    pub async fn stop(mut self) {
        while let Some((_, task)) = self.started.pop() {
            task.abort();
            while !task.is_finished() && self.set.join_next().await.is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    struct Noted(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    fn for_ever(name: &'static str, ends: &Arc<Mutex<Vec<&'static str>>>) -> Task {
        let noted = Noted(name, ends.clone());
        Task::new(name, async move {
            let _noted = noted;
            std::future::pending::<()>().await;
        })
    }

    #[tokio::test]
    async fn tasks_end_in_the_opposite_order() {
        let ends = Arc::default();
        let running = Running::start(vec![for_ever("a", &ends), for_ever("b", &ends), for_ever("c", &ends)]);
        running.stop().await;
        assert_eq!(*ends.lock().unwrap(), ["c", "b", "a"]);
    }

    #[tokio::test]
    async fn one_that_panics_is_named() {
        let ends = Arc::default();
        let panics = Task::new("panics", async { panic!("planted") });
        let mut running = Running::start(vec![for_ever("a", &ends), panics]);
        let EndedTask { name, panic } = running.ended().await.unwrap();
        assert_eq!(name, "panics");
        assert!(panic.is_some_and(|why| why.contains("planted")));
        running.stop().await;
        assert_eq!(*ends.lock().unwrap(), ["a"]);
    }
}
