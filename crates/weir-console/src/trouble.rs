//! An error as a page: what happened, what Weir still does, and what to try.

use crate::frame::{Here, Sheet};
use crate::html;
use crate::session::Visit;
use crate::site::Site;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use weir_foundation::OperationError;
use weir_lab::operations::LabError;

/// Why a page cannot be shown.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    status: StatusCode,
    words: String,
    hint: String,
}

impl Trouble {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>, hint: impl Into<String>) -> Trouble {
        Trouble { status, words: words.into(), hint: hint.into() }
    }

    pub(crate) fn words(&self) -> String {
        format!("{} {}", sentence(&self.words), sentence(&self.hint))
    }

    /// Whether Weir itself failed, so that nobody knows how much of what was asked for has been done.
    pub(crate) fn is_of_weir(&self) -> bool {
        self.status.is_server_error()
    }

    /// A page with the error.
    pub(crate) fn page(&self, site: &Site, visit: Option<&Visit>) -> Response {
        let still = match self.status {
            StatusCode::SERVICE_UNAVAILABLE => Some(html!(
                "<p>Weir goes on with its work: nothing is acknowledged that is not kept, and what waits goes on waiting.</p>"
            )),
            _ => None,
        };
        let body = html!(
            "<section class=\"trouble\"><h1>{}</h1>{}<p>{}</p></section>",
            sentence(&self.words),
            still,
            sentence(&self.hint)
        );
        let mut answer = Sheet::new("Not done", Here::Nowhere, body).bare(site, visit);
        *answer.status_mut() = self.status;
        answer
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let mut answer = self.status.into_response();
        answer.extensions_mut().insert(self);
        answer
    }
}

/// Shows the errors that pages returned as pages.
pub(crate) fn with_troubles(site: &Site, visit: Option<&Visit>, mut answer: Response) -> Response {
    match answer.extensions_mut().remove::<Trouble>() {
        Some(trouble) => trouble.page(site, visit),
        None => answer,
    }
}

impl From<OperationError> for Trouble {
    fn from(error: OperationError) -> Trouble {
        let status = match &error {
            OperationError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            OperationError::Unknown { .. } => StatusCode::NOT_FOUND,
            OperationError::Conflict { .. } => StatusCode::CONFLICT,
            OperationError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Trouble::new(status, error.to_string(), error.hint())
    }
}

impl From<LabError> for Trouble {
    fn from(error: LabError) -> Trouble {
        let (status, hint) = match &error {
            LabError::Unknown(_) => (StatusCode::NOT_FOUND, "The lab's page lists all samples; a hash may be cut."),
            LabError::Records(_) => (StatusCode::SERVICE_UNAVAILABLE, "Look at Weir's log, then try again."),
            _ => (StatusCode::CONFLICT, "Look at the sample again: it may have ended."),
        };
        Trouble::new(status, error.to_string(), hint)
    }
}

/// With a capital letter and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) || text.is_empty() { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}
