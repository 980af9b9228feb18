//! One operation of the API, declared once: how it is called, who may call it, what goes in and what comes out.
//!
//! The declaration is in the same file as its handler. The route, the check of the scope, the entry in the OpenAPI document, and what the
//! command line sends and reads all come from it.

use crate::html::Piece;
use axum::Json;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodFilter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::TypeId;
use std::marker::PhantomData;
use weir_foundation::api_tokens::Scope;

/// An operation that accepts `Input` and returns `Answer`.
///
/// The input is the query of an operation that reads, and the JSON body of one that changes something; `()` means no input.
pub struct Operation<Input, Answer> {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// The least scope that a token needs.
    pub(super) scope: Scope,
    /// It creates something, and answers 201.
    pub(super) makes: bool,
    /// The body is content of at most this many bytes, and the query describes it.
    pub(super) content_max: Option<usize>,
    types: PhantomData<fn(Input) -> Answer>,
}

/// The HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Patch,
}

/// Where the input of an operation is in its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Query,
    Json,
    QueryAndContent,
}

/// An operation that only reads.
pub const fn look<Input, Answer>(path: &'static str, summary: &'static str) -> Operation<Input, Answer> {
    Operation::new(Verb::Get, path, Scope::Read, summary)
}

/// An operation that returns figures or the state of health, and reveals nothing about any message or user.
pub(super) const fn measure<Input, Answer>(path: &'static str, summary: &'static str) -> Operation<Input, Answer> {
    Operation::new(Verb::Get, path, Scope::Metrics, summary)
}

/// An operation that an operator may do.
pub const fn operate<Input, Answer>(path: &'static str, summary: &'static str) -> Operation<Input, Answer> {
    Operation::new(Verb::Post, path, Scope::Operate, summary)
}

/// An operation for administrators.
pub const fn administer<Input, Answer>(path: &'static str, summary: &'static str) -> Operation<Input, Answer> {
    Operation::new(Verb::Post, path, Scope::Admin, summary)
}

/// An operation by which an administrator changes parts of something.
pub const fn change<Input, Answer>(path: &'static str, summary: &'static str) -> Operation<Input, Answer> {
    Operation::new(Verb::Patch, path, Scope::Admin, summary)
}

impl<Input, Answer> Operation<Input, Answer> {
    const fn new(verb: Verb, path: &'static str, scope: Scope, summary: &'static str) -> Operation<Input, Answer> {
        Operation { verb, path, summary, scope, makes: false, content_max: None, types: PhantomData }
    }

    /// The same, but it creates something and answers 201.
    pub const fn makes(mut self) -> Operation<Input, Answer> {
        self.makes = true;
        self
    }

    /// The same, for administrators only.
    pub const fn for_administrators(mut self) -> Operation<Input, Answer> {
        self.scope = Scope::Admin;
        self
    }

    /// The same with content as its body; the input is in the query.
    pub const fn with_content(mut self, bytes_max: usize) -> Operation<Input, Answer> {
        self.content_max = Some(bytes_max);
        self
    }

    /// The method of a request.
    pub fn method(&self) -> Method {
        match self.verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Patch => Method::PATCH,
        }
    }

    /// The path, with its parameter in braces.
    pub fn path(&self) -> &'static str {
        self.path
    }
}

impl<Input: 'static, Answer> Operation<Input, Answer> {
    pub(super) fn takes(&self) -> Takes {
        match self.verb {
            _ if self.content_max.is_some() => Takes::QueryAndContent,
            _ if TypeId::of::<Input>() == TypeId::of::<()>() => Takes::Nothing,
            Verb::Get => Takes::Query,
            Verb::Post | Verb::Patch => Takes::Json,
        }
    }
}

impl<Input: Serialize + 'static, Answer> Operation<Input, Answer> {
    /// The address of a request behind the prefix: the path with `name` in it, and the query.
    pub fn address(&self, name: &str, input: &Input) -> Result<String, serde_json::Error> {
        let path = match (self.path.split_once('{'), self.path.split_once('}')) {
            (Some((before, _)), Some((_, after))) => format!("{before}{}{after}", Piece(name)),
            _ => self.path.to_owned(),
        };
        match self.takes() {
            Takes::Query | Takes::QueryAndContent => Ok(format!("{path}{}", query(&serde_json::to_value(input)?))),
            Takes::Nothing | Takes::Json => Ok(path),
        }
    }

    /// The body of a request; empty if the operation has none.
    pub fn body(&self, input: &Input) -> Result<Vec<u8>, serde_json::Error> {
        if self.takes() == Takes::Json { serde_json::to_vec(input) } else { Ok(Vec::new()) }
    }
}

/// A query with those fields that are not empty.
fn query(fields: &Value) -> String {
    let mut query = String::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if !value.is_empty() {
            let between = if query.is_empty() { '?' } else { '&' };
            query.push_str(&format!("{between}{name}={}", Piece(&value)));
        }
    }
    query
}

impl<Input, Answer> Clone for Operation<Input, Answer> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Input, Answer> Copy for Operation<Input, Answer> {}

impl Verb {
    /// In lower case, as in the OpenAPI document.
    pub(super) fn word(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Patch => "patch",
        }
    }

    pub(super) fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Patch => MethodFilter::PATCH,
        }
    }
}

/// The answer of an operation: a JSON document, except for a few.
pub trait Answer: Sized {
    /// Its content type and its schema.
    fn described(schemas: &mut SchemaGenerator) -> (&'static str, Schema);

    /// The response in which it is sent.
    fn response(self) -> Response;

    /// Reads it from the content of a response.
    fn read(content: &[u8]) -> Result<Self, serde_json::Error>;
}

impl<T: Serialize + DeserializeOwned + JsonSchema> Answer for T {
    fn described(schemas: &mut SchemaGenerator) -> (&'static str, Schema) {
        ("application/json", schemas.subschema_for::<T>())
    }

    fn response(self) -> Response {
        Json(self).into_response()
    }

    fn read(content: &[u8]) -> Result<T, serde_json::Error> {
        serde_json::from_slice(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_queries_are_encoded_byte_by_byte() {
        const SHOW: Operation<(), Value> = look("/users/{name}/lock", "");
        assert_eq!(SHOW.address("ann+x@example.org/é", &()).unwrap(), "/users/ann%2Bx%40example.org%2F%C3%A9/lock");
        const LIST: Operation<Value, Value> = look("/held", "");
        let fields = json!({ "user": "a b", "message": "", "most": 1, "before": null });
        assert_eq!(LIST.address("", &fields).unwrap(), "/held?most=1&user=a%20b");
        assert_eq!(LIST.address("", &json!({ "user": "" })).unwrap(), "/held");
        assert!(LIST.body(&fields).unwrap().is_empty());
    }

    #[test]
    fn what_changes_something_has_its_input_in_the_body() {
        const RELEASE: Operation<Value, Value> = operate("/held/release", "");
        let input = json!({ "trust": true });
        assert_eq!(RELEASE.address("", &input).unwrap(), "/held/release");
        assert_eq!(RELEASE.body(&input).unwrap(), b"{\"trust\":true}");
    }
}
