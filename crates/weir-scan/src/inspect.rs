//! What comes to a verdict about a message, as the mail gate sees it.

use crate::content::Content;
use crate::made::Made;
use crate::panel::Health;
use crate::samples::Candidate;
use crate::start_error::StartError;
use crate::verdict::Verdict;
use std::sync::Arc;

/// What is known of a message beside its content. Spam scanners weigh it; the others look only at the content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The id of the message, for logs.
    pub id: String,
    /// The client's address, if it came over the network.
    pub client: Option<std::net::IpAddr>,
    /// The name that the client gave.
    pub helo: String,
    /// The login, if there was one.
    pub login: Option<String>,
    /// The envelope sender; empty for `<>`.
    pub from: String,
    /// The envelope recipients.
    pub to: Vec<String>,
    /// The content is a file that another program asks about, not mail of ours. Nobody knows who sent it, so spam scanners are not asked.
    pub is_file: bool,
}

/// Looks at one message at a time. Calls may overlap; each has its own bounded time.
pub trait Inspect: Send + Sync + 'static {
    /// Looks at the content and comes to a verdict. Always ends: a scanner that fails is a finding, not an error.
    fn inspect(&self, content: &Content, about: &Arc<About>) -> impl Future<Output = Verdict> + Send;

    /// How the scanners are, where that is known.
    fn health(&self) -> Vec<Health> {
        Vec::new()
    }

    /// One file of the content, decoded; none if it is not there. The bytes have the hash that is asked for.
    fn extract(
        &self,
        content: &Content,
        wanted: &Candidate,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, String>> + Send {
        let _ = (content, wanted);
        async { Err("nobody here opens mail".to_owned()) }
    }

    /// Every attachment of the content, and how many more there are than are named.
    fn attachments(&self, content: &Content) -> impl Future<Output = Result<(Vec<Candidate>, usize), String>> + Send {
        let _ = content;
        async { Err("nobody here opens mail".to_owned()) }
    }

    /// Uses these rules that people made from now on, instead of the former ones. Rules that do not compile change nothing.
    fn adopt(&self, made: &Made) -> impl Future<Output = Result<(), StartError>> + Send {
        std::future::ready(if made.is_empty() { Ok(()) } else { Err(StartError::NoWorkers) })
    }
}
