//! What kind of source a file is, by its content.

use super::postfix::is_log_line;
use std::path::Path;
use weir_sim::input::InputError;

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// Many mails in one file, each after a line `From …`.
    Mbox,
    /// A folder with a file a mail.
    Maildir,
    /// The log of a Postfix.
    Postfix,
}

const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
];

impl SourceKind {
    /// The kind of a file that begins like this.
    pub(crate) fn of(name: &Path, beginning: &[u8]) -> Result<SourceKind, InputError> {
        let text = String::from_utf8_lossy(beginning);
        let text = text.trim_start_matches(['\u{feff}', '\r', '\n']);
        if text.starts_with("From ") {
            return Ok(SourceKind::Mbox);
        }
        // A log that was cut may begin in the middle of a line.
        if text.lines().take(5).any(is_log_line) {
            return Ok(SourceKind::Postfix);
        }
        let hint = "an mbox begins with \"From \", a log with a time (\"Mar  1 12:30:05\" or RFC 3339); \
                    a Maildir is a folder; --kind forces one";
        Err(refused(name, "is neither an mbox nor a Postfix log", hint))
    }
}

/// Refuses what must be unpacked first.
pub(crate) fn refuse_compressed(name: &Path, beginning: &[u8]) -> Result<(), InputError> {
    let Some((_, how, tool)) = COMPRESSED.iter().find(|(magic, ..)| beginning.starts_with(magic)) else {
        return Ok(());
    };
    let hint = format!("unpack it on the way: {tool} {} | weir replay -", name.display());
    Err(refused(name, &format!("is compressed with {how}"), &hint))
}

/// A problem with the source `name`.
pub(crate) fn refused(name: &Path, problem: &str, hint: &str) -> InputError {
    InputError::new(name.display().to_string(), problem, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(beginning: &[u8]) -> Result<SourceKind, InputError> {
        SourceKind::of(Path::new("f"), beginning)
    }

    #[test]
    fn a_file_says_what_it_is() {
        assert_eq!(kind(b"From ann Fri Mar"), Ok(SourceKind::Mbox));
        assert_eq!(kind(b"\r\n\xef\xbb\xbfFrom ann"), Ok(SourceKind::Mbox));
        assert_eq!(kind(b"Mar  1 12:30:05 mail postfix/smtpd[1]: x"), Ok(SourceKind::Postfix));
        assert_eq!(kind(b"of a line\n2024-03-01T12:30:05+01:00 mail dovecot: x\n"), Ok(SourceKind::Postfix));
        for strange in [&b"hello"[..], b"\0\0\0", b"From: ann@x.org\n", b"\xff\xfe", b"{\"t\":1}"] {
            assert!(kind(strange).unwrap_err().hint.contains("--kind"));
        }
        assert!(
            refuse_compressed(Path::new("mail.log.1.gz"), b"\x1f\x8b\x08")
                .unwrap_err()
                .hint
                .contains("zcat mail.log.1.gz |")
        );
    }
}
