//! Finds a stored message by its id, and reads the start of its file for display.

use super::{OperationError, names};
use std::io::Read;
use std::path::PathBuf;
use weir_store::spool::MessageId;

const HEADER_BYTES: u64 = 16 * 1024;
const HEADER_LINES: usize = 40;

pub(super) fn message_id(text: &str) -> Result<MessageId, OperationError> {
    text.parse().map_err(|error: weir_store::spool::NotAnId| {
        OperationError::invalid(
            format!("{:?} is {error}", names::shown(text)),
            "`weir held list` shows the ids of held mail",
        )
    })
}

/// The size of a message, and the first lines of its header.
pub(super) fn header_of(file: PathBuf) -> std::io::Result<(u64, Vec<String>)> {
    let file = std::fs::File::open(file)?;
    let size = file.metadata()?.len();
    let mut start = Vec::new();
    file.take(HEADER_BYTES).read_to_end(&mut start)?;
    let text = String::from_utf8_lossy(&start);
    let lines = text.split('\n').map(|line| line.trim_end_matches('\r')).take_while(|line| !line.is_empty());
    // What strangers wrote must not command the terminal that shows it.
    let clean = |line: &str| -> String {
        line.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).take(200).collect()
    };
    Ok((size, lines.take(HEADER_LINES).map(clean).collect()))
}
