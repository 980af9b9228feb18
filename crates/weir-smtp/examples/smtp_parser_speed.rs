//! How fast the session alone is, without sockets: messages of 4 KiB a second on one core.
//!
//! `cargo run --release -p weir-smtp --example smtp_parser_speed`

use std::io::Write;
use std::sync::Arc;

use weir_core::time::Instant;
use weir_smtp::limits::SmtpLimits;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reply::{Reply, Status};
use weir_smtp::session::{MessageAnswer, Output, PolicyVerdict, Question, Session};
use weir_smtp::settings::{Auth, Settings};

const MESSAGES: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = [&[b'x'; 78][..], b"\r\n"].concat();
    let text = [b"Subject: speed\r\n\r\n", &line.repeat(51)[..], b".\r\n"].concat();
    let dialogue = b"MAIL FROM:<a@a.example> SIZE=4096\r\nRCPT TO:<b@b.example>\r\nDATA\r\n";
    let address = "127.0.0.1:1".parse()?;
    let limits = SmtpLimits { commands: u32::MAX, ..SmtpLimits::default() };
    let settings = Arc::new(Settings { auth: Auth::Optional, limits, ..Settings::default() });
    let mut session = Session::new(settings, SmtpPeer::new(1, address, address), Instant::ZERO);
    feed(&mut session, b"EHLO me\r\n");
    let start = std::time::Instant::now();
    let mut octets = 0;
    for _ in 0..MESSAGES {
        octets += feed(&mut session, dialogue);
        octets += feed(&mut session, &text);
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = f64::from(MESSAGES) / seconds;
    writeln!(std::io::stdout(), "{rate:.0} messages/s, {:.0} MB/s of text", octets as f64 / seconds / 1e6)?;
    Ok(())
}

/// Says yes to everything; octets of message text.
fn feed(session: &mut Session, mut input: &[u8]) -> usize {
    let (now, mut octets) = (Instant::ZERO, 0);
    loop {
        match session.poll(&mut input, now) {
            Output::Body(text) => octets += text.len(),
            Output::Ask(Question::Sender(sender)) => session.sender_answered(sender, PolicyVerdict::Accept, now),
            Output::Ask(Question::Recipient(to)) => session.recipient_answered(to, PolicyVerdict::Accept, now),
            Output::Ask(Question::BodyBegin) => session.body_opened(Ok(()), now),
            Output::Ask(Question::BodyEnd) => {
                drop(session.take_envelope());
                session.finished(&MessageAnswer::All(Reply::fixed(250, Status(2, 0, 0), "ok")), now);
            }
            Output::NeedInput => break,
            other => panic!("{other:?}"),
        }
    }
    session.replies().clear();
    octets
}
