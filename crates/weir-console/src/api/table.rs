//! The operations of the API with their handlers, one row each. The routes and the OpenAPI document are made from these rows.

use super::call::{self, Call};
use super::operation::{Answer, Operation, Takes, Verb};
use super::problem::Problem;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use weir_foundation::api_tokens::Scope;

/// An operation on its way to an answer.
type Carried = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// Operations on gates `S`.
pub(super) struct Table<S> {
    pub(super) router: Router<S>,
    pub(super) rows: Vec<Row>,
}

/// What the OpenAPI document and `door.rs` need to know of one operation.
pub(super) struct Row {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) scope: Scope,
    pub(super) makes: bool,
    pub(super) takes: Takes,
    /// The schema of its input, with its fields.
    pub(super) fields: fn(&mut SchemaGenerator) -> Schema,
    /// The same, as a reference by name.
    pub(super) input: fn(&mut SchemaGenerator) -> Schema,
    pub(super) answer: fn(&mut SchemaGenerator) -> (&'static str, Schema),
}

impl<S: Clone + Send + Sync + 'static> Table<S> {
    pub(super) fn new() -> Table<S> {
        Table { router: Router::new(), rows: Vec::new() }
    }

    /// The table with one more operation, which `handler` carries out. The compiler checks that the handler fits the declaration.
    pub(super) fn with<I, A, F, W>(mut self, operation: Operation<I, A>, handler: F) -> Table<S>
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        A: Answer + 'static,
        F: Fn(Call<S>, I) -> W + Clone + Send + Sync + 'static,
        W: Future<Output = Result<A, Problem>> + Send + 'static,
    {
        let carry_out = move |state: S, request: Request| -> Carried {
            let handler = handler.clone();
            Box::pin(async move {
                let (call, input) = call::read(operation, state, request).await?;
                let mut response: Response = handler(call, input).await?.response();
                if operation.makes {
                    *response.status_mut() = StatusCode::CREATED;
                }
                Ok(response)
            })
        };
        let mut route = route(operation.verb, Arc::new(carry_out));
        if let Some(bytes) = operation.content_max {
            route = route.layer(DefaultBodyLimit::max(bytes));
        }
        self.router = self.router.route(operation.path, route);
        self.rows.push(Row {
            verb: operation.verb,
            path: operation.path,
            summary: operation.summary,
            scope: operation.scope,
            makes: operation.makes,
            takes: operation.takes(),
            fields: I::json_schema,
            input: |schemas| schemas.subschema_for::<I>(),
            answer: A::described,
        });
        self
    }
}

/// The route of one operation. Its type says nothing about the operation, so that the compiler deals with axum's many layers once for all of them.
fn route<S: Clone + Send + Sync + 'static>(
    verb: Verb,
    carry_out: Arc<dyn Fn(S, Request) -> Carried + Send + Sync>,
) -> MethodRouter<S> {
    on(verb.filter(), move |State(state): State<S>, request: Request| carry_out(state, request))
}

impl Row {
    /// A name for programs that are written from the document: `get_users_name`.
    pub(super) fn id(&self) -> String {
        let path = self.path.replace(['{', '}'], "").replace(['/', '-', '.'], "_");
        format!("{}{path}", self.verb.word())
    }

    /// Whether this is the operation for a method and a path without the prefix. A part in braces matches any one piece of the path.
    pub(super) fn is_asked(&self, method: &str, path: &str) -> bool {
        let (mut pieces, mut patterns) = (path.split('/'), self.path.split('/'));
        if !self.verb.word().eq_ignore_ascii_case(method) {
            return false;
        }
        loop {
            match (pieces.next(), patterns.next()) {
                (None, None) => return true,
                (Some(piece), Some(pattern)) if pattern.starts_with('{') && !piece.is_empty() => {}
                (Some(piece), Some(pattern)) if piece == pattern => {}
                _ => return false,
            }
        }
    }
}
