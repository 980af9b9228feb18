//! Where programs find a name for a part that has none of its own: in other fields of its header.

use super::encoded_word::percent_decoded;
use super::field::shown;
use crate::file_name;

/// A header can name a part in a few ways, not in hundreds.
pub(super) const NAMES_MAX: usize = 16;

/// Fields that some programs take a name from if there is no other.
#[derive(Default)]
pub(super) struct LastNames {
    pub(super) location: Vec<u8>,
    pub(super) description: Vec<u8>,
    pub(super) id: Vec<u8>,
    /// `Content-Name` and what Sun's programs wrote.
    pub(super) other_fields: Vec<Vec<u8>>,
    pub(super) is_attachment: bool,
}

impl LastNames {
    /// Whether it came from the web.
    pub(super) fn is_address(&self) -> bool {
        memchr::memmem::find(&self.location, b"://").is_some()
    }

    /// Those with an extension. In free text and addresses `.com` is a domain.
    pub(super) fn names(&self, is_text: bool, is_media: bool) -> Vec<String> {
        let mut names: Vec<String> = self.other_fields.iter().take(NAMES_MAX).flat_map(|name| named(name)).collect();
        if !self.is_address() {
            names.extend(shown(b"", self.location.trim_ascii()));
        } else if self.is_attachment {
            names.extend(last_part(&String::from_utf8_lossy(&self.location)));
        }
        // One word that describes a file is its name to some. A text that is shown is described in free words.
        let one_word = !self.description.trim_ascii().iter().any(u8::is_ascii_whitespace);
        if self.is_attachment || (one_word && !is_text) {
            names.extend(shown(b"", self.description.trim_ascii()));
        }
        // So to those who know no other name; a picture that is shown is named otherwise.
        if self.is_attachment || !(is_text || is_media) {
            let id = String::from_utf8_lossy(&self.id);
            names.extend(Some(id.trim().trim_matches(['<', '>']).to_owned()).filter(|id| !id.contains('@')));
        }
        names.retain(|name| file_name::extension(name).is_some_and(|own| !own.is_empty() && own != "com"));
        names
    }
}

/// What a field that is nothing but a name says, with or without quotes.
fn named(field: &[u8]) -> Vec<String> {
    let field = field.trim_ascii();
    let bare = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(field);
    let mut names: Vec<String> = shown(b"", bare).into_iter().collect();
    names.extend(names.clone().iter().flat_map(|name| undone(name)));
    names
}

/// The last part of the path of an address; none if it has no path.
fn last_part(address: &str) -> Option<String> {
    let (_, behind) = address.trim().split_once("://")?;
    let path = behind.split(['?', '#']).next()?;
    let (_, last) = path.rsplit_once('/')?;
    (!last.is_empty()).then(|| last.to_owned())
}

/// What programs make of a name that take off single quotes, or undo escapes of addresses.
pub(super) fn undone(name: &str) -> Vec<String> {
    let bare = name.trim().trim_matches('\'');
    let escaped = percent_decoded(name.as_bytes());
    let mut found = Vec::new();
    if bare.len() < name.trim().len() {
        found.push(bare.to_owned());
    }
    if escaped.len() < name.len() {
        found.push(String::from_utf8_lossy(&escaped).into_owned());
    }
    found
}
