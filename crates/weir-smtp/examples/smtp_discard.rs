//! An SMTP server that throws every message away: to measure the server alone.
//!
//! `cargo run --release -p weir-smtp --example smtp_discard -- 127.0.0.1:2525`, then for example `smtp-source -s 20 -m 20000 -l 4096
//! 127.0.0.1:2525`. Prints the address, and counters when its input ends.

use std::io::Write;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_smtp::envelope::{Envelope, MailFrom, RcptTo};
use weir_smtp::limits::SmtpLimits;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reception::{BodySink, Reception};
use weir_smtp::reply::{Reply, Status};
use weir_smtp::sasl::Login;
use weir_smtp::server::{SmtpServer, TlsMode};
use weir_smtp::session::{LoginVerdict, MessageAnswer, PolicyVerdict};
use weir_smtp::settings::{Auth, Settings};
use weir_tls::Tls;

struct Discard;

struct Nothing;

impl BodySink for Nothing {
    async fn write(&mut self, _: &[u8]) -> Result<(), Reply> {
        Ok(())
    }
}

impl Reception for Discard {
    type Body = Nothing;

    async fn authenticate(&self, _: &SmtpPeer, login: &Login) -> LoginVerdict {
        LoginVerdict::Accept(login.user().into())
    }

    async fn mail_from(&self, _: &SmtpPeer, _: &MailFrom) -> PolicyVerdict {
        PolicyVerdict::Accept
    }

    async fn rcpt_to(&self, _: &SmtpPeer, _: &Envelope, _: &RcptTo) -> PolicyVerdict {
        PolicyVerdict::Accept
    }

    async fn begin_body(&self, _: &SmtpPeer, _: &Envelope) -> Result<Nothing, Reply> {
        Ok(Nothing)
    }

    async fn finish(&self, _: &SmtpPeer, _: Envelope, _: Nothing) -> MessageAnswer {
        Reply::fixed(250, Status(2, 0, 0), "thrown away").into()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:0".into()).parse()?;
    // With a folder as second argument, STARTTLS with a self-signed certificate kept there.
    let folder = arguments.next();
    let limits = SmtpLimits { connections: 20_000, connections_per_address: 20_000, ..SmtpLimits::default() };
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let tls = match folder {
        Some(folder) => TlsMode::StartTls(Tls::self_signed(folder.as_ref(), &["localhost".into()])?.into()),
        None => TlsMode::Off,
    };
    let server = SmtpServer::new(Discard, limits.clone());
    let settings = Settings { auth: Auth::Optional, limits, ..Settings::default() };
    let address = server.listen(address, settings, tls)?;
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    writeln!(out, "{:#?}", server.counters())?;
    Ok(())
}
