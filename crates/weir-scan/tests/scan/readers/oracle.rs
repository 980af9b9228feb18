//! What `mail-parser` shows of a message, and whether our walk shows all of it.

use mail_parser::{Message, MessageParser, MimeHeaders, PartType};
use weir_scan::budget::{Budget, Exceeded, Limits};
use weir_scan::walk::{File, NestedPath, Oddity, Visit, walk};

/// Something that a reader shows: a name, which may be empty, and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// Every file that the walk finds.
#[derive(Default)]
struct Found(Vec<(Vec<String>, Vec<u8>)>);

impl Visit for Found {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        self.0.push((file.names.to_vec(), comparable(file.data)));
        Ok(())
    }

    fn odd(&mut self, _: &NestedPath, _: Oddity) {}
}

/// Line ends and blanks around a body are nobody's business, and Dovecot writes 0x80 for a NUL.
fn comparable(content: &[u8]) -> Vec<u8> {
    let told = |byte: &u8| if *byte == 0 { 0x80 } else { *byte };
    let plain: Vec<u8> = content.iter().filter(|byte| !b"\r\n".contains(byte)).map(told).collect();
    plain.trim_ascii().to_vec()
}

fn comparable_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace() && *c != '"' && *c != '\\').collect()
}

/// The leaf that the walk does not show. A name with encoded words that a reader leaves as they are is not compared: its letters are ours in code. A body of ours may go on where another reader's ends, but begins where it begins. A message that is
/// beyond a limit is not delivered anyway.
pub(crate) fn missing<'l>(message: &[u8], leaves: &'l [Leaf]) -> Option<&'l Leaf> {
    let mut found = Found::default();
    if walk(message, &mut Budget::new(&Limits::default()), &mut found).is_err() {
        return None;
    }
    leaves.iter().find(|leaf| {
        let (content, name) = (comparable(&leaf.content), comparable_name(&leaf.name));
        let is_shown = |(names, data): &(Vec<String>, Vec<u8>)| {
            data.starts_with(&content)
                && (name.is_empty() || name.contains("=?") || names.iter().any(|known| comparable_name(known) == name))
        };
        // An empty body without a name shows nobody anything.
        let is_empty = content.is_empty() && name.is_empty();
        !is_empty && !found.0.iter().any(is_shown)
    })
}

/// The leaves that `mail-parser` shows.
pub(crate) fn mail_parser_leaves(message: &[u8]) -> Vec<Leaf> {
    // With its own checks on, it gives up on some messages; then it shows nothing.
    let parsed = std::panic::catch_unwind(|| {
        let mut leaves = Vec::new();
        if let Some(message) = MessageParser::default().parse(message) {
            gather(&message, &mut leaves);
        }
        leaves
    });
    parsed.unwrap_or_default()
}

fn gather(message: &Message<'_>, leaves: &mut Vec<Leaf>) {
    for part in &message.parts {
        match &part.body {
            PartType::Multipart(_) => {}
            PartType::Message(inner) => gather(inner, leaves),
            PartType::Text(_) | PartType::Html(_) | PartType::Binary(_) | PartType::InlineBinary(_) => {
                let name = part.attachment_name().unwrap_or_default().to_owned();
                leaves.push(Leaf { name, content: part.contents().to_vec() });
            }
        }
    }
}
