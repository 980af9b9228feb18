//! An inspector behind a pointer, so that feeds can have inspectors of different kinds.

use std::pin::Pin;
use std::sync::Arc;
use weir_scan::content::Content;
use weir_scan::inspect::{About, Inspect};
use weir_scan::made::Made;
use weir_scan::panel::{Health, StartError};
use weir_scan::samples::Candidate;
use weir_scan::verdict::Verdict;

/// An [`Inspect`] of any kind.
pub trait Inspector: Send + Sync + 'static {
    /// As [`Inspect::inspect`].
    fn inspect_boxed<'a>(
        &'a self,
        content: &'a Content,
        about: &'a Arc<About>,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

    /// As [`Inspect::health`].
    fn scanners(&self) -> Vec<Health>;

    /// As [`Inspect::extract`].
    fn extract_boxed<'a>(&'a self, content: &'a Content, wanted: &'a Candidate) -> Opened<'a, Option<Vec<u8>>>;

    /// As [`Inspect::attachments`].
    fn attachments_boxed<'a>(&'a self, content: &'a Content) -> Opened<'a, (Vec<Candidate>, usize)>;

    /// As [`Inspect::adopt`].
    fn adopt_boxed<'a>(&'a self, made: &'a Made) -> Adopted<'a>;
}

/// Whether rules are in force, later.
pub type Adopted<'a> = Pin<Box<dyn Future<Output = Result<(), StartError>> + Send + 'a>>;

/// What comes out of a message, later.
pub type Opened<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

impl<I: Inspect> Inspector for I {
    fn inspect_boxed<'a>(
        &'a self,
        content: &'a Content,
        about: &'a Arc<About>,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(self.inspect(content, about))
    }

    fn scanners(&self) -> Vec<Health> {
        self.health()
    }

    fn extract_boxed<'a>(&'a self, content: &'a Content, wanted: &'a Candidate) -> Opened<'a, Option<Vec<u8>>> {
        Box::pin(self.extract(content, wanted))
    }

    fn attachments_boxed<'a>(&'a self, content: &'a Content) -> Opened<'a, (Vec<Candidate>, usize)> {
        Box::pin(self.attachments(content))
    }

    fn adopt_boxed<'a>(&'a self, made: &'a Made) -> Adopted<'a> {
        Box::pin(self.adopt(made))
    }
}
