//! Notes a request that changes something in the audit trail before anything is done, and removes the note when the request has ended.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use weir_foundation::audit::AuditTrail;
use weir_foundation::{Actor, OperationError};

/// Goes with an answer whose status says nothing of it: what was asked for ended in an error of Weir. A page sends the browser on, to
/// another page that shows the error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedInError;

/// Carries out what `actor` asks for. An error means that the trail cannot be written, and that nothing was done.
pub(crate) async fn noted(
    trail: &AuditTrail,
    actor: &Actor,
    request: Request,
    next: Next,
) -> Result<Response, OperationError> {
    let begun = trail.begin(actor, &format!("{} {}", request.method(), request.uri().path())).await?;
    let answer = next.run(request).await;
    if answer.status().is_server_error() || answer.extensions().get::<EndedInError>().is_some() {
        // Part or all of it may have been done, with or without its line in the trail.
        trail.doubt(begun).await;
    } else {
        trail.end(begun).await;
    }
    Ok(answer)
}
