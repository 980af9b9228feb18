//! What the corpus is made of.

/// Where mail must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// Quarantine `ext`: forbidden.
    Forbidden,
    /// Quarantine `virus`.
    Infected,
    /// Quarantine `limit`: nobody opened it.
    NotOpened,
}

/// A message, and what it is a case of.
#[derive(Clone)]
pub(crate) struct Mail {
    pub(crate) class: &'static str,
    pub(crate) name: String,
    pub(crate) message: Vec<u8>,
}

/// One that must not be delivered.
pub(crate) struct Bad {
    pub(crate) mail: Mail,
    /// Any of these is right; the first is usual.
    pub(crate) ends: Vec<End>,
    /// What the reason must say.
    pub(crate) says: &'static str,
}

pub(crate) fn bad(class: &'static str, name: &str, message: Vec<u8>, ends: &[End], says: &'static str) -> Bad {
    Bad { mail: Mail { class, name: name.to_owned(), message }, ends: ends.to_vec(), says }
}
