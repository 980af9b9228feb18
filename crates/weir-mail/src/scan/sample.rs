//! Who wants to see what looks suspicious: a laboratory.

use std::sync::Arc;
use weir_scan::content::Content;
use weir_scan::inspect::About;

/// Something worth an analysis.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The whole message.
    pub content: Content,
    /// Whose it is and where it came from.
    pub about: Arc<About>,
    /// Why it is suspicious.
    pub reasons: Vec<String>,
}

/// Takes samples. Must not block; who has no room drops them.
pub trait SampleSink: Send + Sync + 'static {
    /// Here is one.
    fn offer(&self, sample: Sample);
}
