//! Asks the leader, from any machine of the lab, questions that only it can answer: `weir-lab 1 ask`, one line, one answer.

use super::connection::{Caller, Lines};
use super::elector::Post;
use super::registry::Registry;
use std::io;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

/// From a question to its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends questions to the leader. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LeaderClient {
    pub(crate) post: watch::Receiver<Post>,
    pub(crate) registry: Registry,
    pub(crate) caller: Caller,
}

impl LeaderClient {
    /// The leader's name and address, if this machine follows one.
    pub(crate) fn leader(&self) -> Option<String> {
        match *self.post.borrow() {
            Post::Following(leader) => self.registry.name(leader),
            _ => None,
        }
    }

    /// The leader's answer to a line; or why there is none, in words.
    pub(crate) async fn ask(&self, question: &str) -> Result<String, String> {
        let leader = match *self.post.borrow() {
            Post::Following(leader) => self.registry.address(leader),
            _ => None,
        };
        let leader = leader.ok_or("nobody leads at the moment")?;
        let answer = tokio::time::timeout(PATIENCE, self.ask_at(leader, question)).await;
        let answer = answer.map_err(|_| "the leader does not answer".to_owned())?;
        let answer = answer.map_err(|error| format!("the leader cannot be asked: {error}"))?;
        match answer.strip_prefix("answer ") {
            Some(words) => Ok(words.to_owned()),
            None => Err(answer.strip_prefix("bye ").unwrap_or("the leader hung up").to_owned()),
        }
    }

    async fn ask_at(&self, leader: std::net::IpAddr, question: &str) -> io::Result<String> {
        let mut stream = self.caller.call_eligible(leader, "ask", PATIENCE).await?;
        stream.write_all(format!("{question}\n").as_bytes()).await?;
        stream.flush().await?;
        Ok(Lines::new(stream).line().await?.unwrap_or_default())
    }
}
