//! Access to the header fields of a request, independent of how they are stored.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header fields, from which the lines of one name can be looked up.
pub trait Fields {
    /// The values of all fields of this name, in their order.
    fn lines(&self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &[u8]>;
}

impl Fields for HeaderMap {
    fn lines(&self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.get_all(name).iter().map(HeaderValue::as_bytes)
    }
}

/// The fields as they were read.
impl Fields for [weir_http1::Field<'_>] {
    fn lines(&self, name: &HeaderName) -> impl DoubleEndedIterator<Item = &[u8]> {
        let name = name.as_str();
        self.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }
}
