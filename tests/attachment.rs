//! Makes mail with one attached file.

use base64::Engine;

/// The headers and the body of a message that consists of this file.
pub(crate) fn attached(name: &str, data: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(data);
    let lines: Vec<&str> = text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    format!(
        "MIME-Version: 1.0\r\nContent-Type: application/octet-stream; name=\"{name}\"\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}\r\n",
        lines.join("\r\n")
    )
}
