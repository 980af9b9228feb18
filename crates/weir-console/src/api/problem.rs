//! An error of the API as a problem document (RFC 9457), with a hint what to do.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use weir_foundation::OperationError;
use weir_lab::node::NotTaken;
use weir_lab::operations::LabError;

/// Why a request was refused.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Problem {
    /// The kind, in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What exactly the problem is.
    detail: String,
    /// What to do next.
    hint: String,
}

impl Problem {
    fn new(status: StatusCode, title: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem { title, status: status.as_u16(), detail: detail.into(), hint: hint.into() }
    }

    pub(super) fn invalid(detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not valid", detail, hint)
    }

    pub(super) fn not_found() -> Problem {
        Problem::new(
            StatusCode::NOT_FOUND,
            "not found",
            "there is nothing at this address",
            "everything is under /api/v1",
        )
    }

    pub(super) fn gate_is_off(gate: &str, section: &str) -> Problem {
        let detail = format!("the {gate} is off on this Weir ({section} in the configuration), or has not started");
        let hint = "`weir status` says which gates run, and why one does not";
        Problem::new(StatusCode::NOT_FOUND, "gate is off", detail, hint)
    }

    pub(super) fn method() -> Problem {
        let detail = "this cannot be done to this address";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong method", detail, "GET looks, POST and PATCH change")
    }

    pub(super) fn too_slow() -> Problem {
        let hint = "look at Weir's log, then try again";
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "too slow", "the gate did not answer in time", hint)
    }

    pub(super) fn goes_on() -> Problem {
        let hint = "look at what became of it before you ask again; the audit trail has a line when it is done";
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "too slow", "the change is still under way", hint)
    }

    pub(crate) fn refused(detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "not allowed", detail, hint)
    }

    pub(crate) fn unauthorised(detail: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, "who is it?", detail, hint)
    }

    pub(super) fn nobody() -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "not allowed", "it is not known who asks", "use the control socket")
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Problem {
        let (status, title) = match &error {
            OperationError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "not valid"),
            OperationError::Unknown { .. } => (StatusCode::NOT_FOUND, "not found"),
            OperationError::Conflict { .. } => (StatusCode::CONFLICT, "does not fit"),
            OperationError::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
        };
        Problem::new(status, title, error.to_string(), error.hint())
    }
}

impl From<LabError> for Problem {
    fn from(error: LabError) -> Problem {
        let (status, title, hint) = match &error {
            LabError::Unknown(_) => (
                StatusCode::NOT_FOUND,
                "not found",
                "`weir lab list` shows samples; a hash may be cut, to four digits at least",
            ),
            LabError::Priority(_)
            | LabError::Choice(_)
            | LabError::NotTaken(NotTaken::NothingToRun(_) | NotTaken::NothingChosen(_)) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "not valid", "`weir lab status` shows the plugins of this lab")
            }
            LabError::Tag(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "not valid", "lab.tags and lab.vms say which tags a machine has")
            }
            LabError::NoMachine(_) => (StatusCode::NOT_FOUND, "not found", "`weir lab nodes` shows the machines"),
            LabError::NotInvited(_) | LabError::NotPrioritised(..) => {
                (StatusCode::CONFLICT, "does not fit", "ask an eligible machine of a lab of several; docs/lab.md")
            }
            LabError::TooLate(_) => (StatusCode::CONFLICT, "does not fit", "`weir lab report` shows what came of it"),
            LabError::Leads(_) => {
                (StatusCode::CONFLICT, "does not fit", "stop it first: another leads then, and it can be taken out")
            }
            LabError::NotAsked(..) => {
                (StatusCode::SERVICE_UNAVAILABLE, "failed", "`weir lab status` shows who leads; try again")
            }
            LabError::NotTaken(NotTaken::Outside) => {
                (StatusCode::CONFLICT, "does not fit", "machines outside the lab analyse; they take nothing in")
            }
            LabError::NoPackets(_) => (StatusCode::NOT_FOUND, "not found", "`weir lab report` shows what it did"),
            LabError::NoContent(..) => (
                StatusCode::NOT_FOUND,
                "not found",
                "ask the machine where the sample was handed in; old content is removed",
            ),
            LabError::NotTaken(_) | LabError::Records(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "failed", "look at the log and the free space, and try again")
            }
        };
        Problem::new(status, title, error.to_string(), hint)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(self)).into_response()
    }
}
