//! SMTP smuggling: every known false end of data, with the input cut at every possible place.
//!
//! A false end must not end the message. The message that contains it is refused, and commands after it are text.

use crate::shell::{Shell, settings};
use weir_smtp::settings::Settings;

/// Octets that some server has taken for the end of data (Longin's survey of 2023, and the lists of Postfix and Exim), and a few that
/// differ from these by one octet.
const FALSE_ENDS: &[&[u8]] = &[
    b"\n.\n",
    b"\n.\r\n",
    b"\r\n.\n",
    b"\r.\r",
    b"\r.\r\n",
    b"\r\n.\r",
    b"\n.\r",
    b"\r.\n",
    b"\r\n.\r\r\n",
    b"\r\n\0.\r\n",
    b"\r\n.\0\r\n",
    b"\n\n.\r\n",
    b"\r\r\n.\n",
    b"\r\n.\n\r\n",
    b"\r\n\n.\r\n",
    b"\r\r.\r\n",
    b"\n\r.\r\n",
    b"\0\n.\r\n",
];

const HEAD: &str = "EHLO a\r\nMAIL FROM:<a@a.example>\r\nRCPT TO:<b@b.example>\r\nDATA\r\nSubject: x\r\n\r\ninnocent";
const SMUGGLED: &str = "MAIL FROM:<admin@b.example>\r\nRCPT TO:<victim@b.example>\r\nDATA\r\nsmuggled\r\n.\r\n";

#[test]
fn no_false_end_is_taken() {
    for end in FALSE_ENDS {
        let attack = [HEAD.as_bytes(), end, SMUGGLED.as_bytes()].concat();
        let whole = outcome(&[&attack]);
        assert!(whole.contains("554 5.6.0"), "{end:?}: {whole}");
        assert_eq!(whole.matches("354 ").count(), 1, "{end:?}: {whole}");
        assert!(whole.ends_with("kept 0"), "{end:?}: {whole}");
        for cut in 0..=attack.len() {
            let (head, tail) = attack.split_at(cut);
            assert_eq!(outcome(&[head, tail]), whole, "{end:?} cut at {cut}");
        }
        let octets: Vec<&[u8]> = attack.chunks(1).collect();
        assert_eq!(outcome(&octets), whole, "{end:?} octet by octet");
    }
}

#[test]
fn the_true_end_is_taken_at_every_cut() {
    let message = [HEAD.as_bytes(), b"\r\n.\r\nQUIT\r\n"].concat();
    let whole = outcome(&[&message]);
    assert!(whole.ends_with("221 2.0.0 goodbye\r\nkept 1"), "{whole}");
    for cut in 0..=message.len() {
        let (head, tail) = message.split_at(cut);
        assert_eq!(outcome(&[head, tail]), whole, "cut at {cut}");
    }
}

/// If submission repairs line ends, a false end still ends nothing: there is one message, whose text contains what was to be smuggled,
/// without a bare CR or LF that the next server could take for an end.
#[test]
fn a_server_that_mends_line_ends_takes_no_false_end_either() {
    for end in FALSE_ENDS.iter().filter(|end| !end.contains(&0)) {
        let attack = [HEAD.as_bytes(), end, SMUGGLED.as_bytes()].concat();
        let (replies, kept) = mended(&[&attack]);
        assert_eq!((replies.matches("354 ").count(), kept.len()), (1, 1), "{end:?}: {replies}");
        let text = &kept[0];
        assert!(text.contains("RCPT TO:<victim@b.example>") && text.ends_with("smuggled\r\n"), "{end:?}: {text:?}");
        assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "{end:?}: {text:?}");
        for cut in 0..=attack.len() {
            let (head, tail) = attack.split_at(cut);
            assert_eq!(mended(&[head, tail]), (replies.clone(), kept.clone()), "{end:?} cut at {cut}");
        }
    }
    let (replies, kept) = mended(&[HEAD.as_bytes(), b"\r\na\0b\r\n.\r\n"]);
    assert!(kept.is_empty() && replies.contains("554 5.6.0"), "a NUL is mended nowhere: {replies}");
}

/// In a chunk, dots have no meaning, but bare CR and LF are refused too, because the next server may get the message by DATA.
#[test]
fn chunks_cannot_smuggle_to_the_next_hop() {
    for end in FALSE_ENDS {
        let text = [b"innocent", *end, SMUGGLED.as_bytes()].concat();
        let head = format!("EHLO a\r\nMAIL FROM:<a@a>\r\nRCPT TO:<b@b>\r\nBDAT {} LAST\r\n", text.len());
        let attack = [head.as_bytes(), &text].concat();
        let whole = outcome(&[&attack]);
        assert!(whole.contains("554 5.6.0") && whole.ends_with("kept 0"), "{end:?}: {whole}");
        let octets: Vec<&[u8]> = attack.chunks(1).collect();
        assert_eq!(outcome(&octets), whole, "{end:?} octet by octet");
    }
}

#[test]
fn a_refused_bdat_is_not_read_as_commands() {
    let chunk = "MAIL FROM:<admin@b>\r\nRCPT TO:<victim@b>\r\n";
    for head in
        ["", "EHLO a\r\n", "EHLO a\r\nMAIL FROM:<a@a>\r\n", "EHLO a\r\nMAIL FROM:<a@a>\r\nRCPT TO:<refused@b>\r\n"]
    {
        let attack = format!("{head}BDAT {} LAST\r\n{chunk}NOOP\r\n", chunk.len());
        let whole = outcome(&[attack.as_bytes()]);
        assert!(!whole.contains("2.1.5"), "{whole}");
        assert!(whole.ends_with("250 2.0.0 ok\r\nkept 0"), "{whole}");
    }
}

#[test]
fn a_chunk_of_unreadable_size_ends_the_session() {
    for bad in ["BDAT x\r\n", "BDAT -5 LAST\r\n", "BDAT 5 FIRST\r\n", "BDAT 99999999999999999999999999999\r\n"] {
        let attack = format!("EHLO a\r\nMAIL FROM:<a@a>\r\nRCPT TO:<b@b>\r\n{bad}RSET\r\n");
        let whole = outcome(&[attack.as_bytes()]);
        assert!(!whole.contains("forgotten"), "{bad}: {whole}");
    }
    let huge = outcome(&[b"EHLO a\r\nBDAT 18446744073709551615\r\nNOOP\r\n"]);
    assert!(huge.contains("552 5.3.4") && !huge.contains("2.0.0 ok"), "{huge}");
}

/// All replies, and the messages that were accepted, from a server that repairs line ends.
fn mended(pieces: &[&[u8]]) -> (String, Vec<String>) {
    let mut shell = Shell::new(Settings { mend_text: true, ..settings() });
    let replies = pieces.iter().map(|piece| shell.say(piece)).collect();
    (replies, shell.kept.iter().map(|kept| String::from_utf8_lossy(&kept.text).into_owned()).collect())
}

/// All replies, and the number of messages that were accepted.
fn outcome(pieces: &[&[u8]]) -> String {
    let mut shell = Shell::new(settings());
    let mut replies = String::new();
    for piece in pieces {
        replies += &shell.say(piece);
    }
    format!("{replies}kept {}", shell.kept.len())
}
