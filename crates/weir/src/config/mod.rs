//! The configuration, in two stages.
//!
//! Stage one is the TOML exactly as typed, with the position of every key ([`Reader`]). Stage two is [`Config`]: every number is inside its
//! bounds, and every default is filled in. The step from one to the other reports *all* problems at once, each with its key, line and a
//! hint. Each section is declared by the gate that uses it ([`weir_settings::settings!`]); validation, `weir config show` and
//! `docs/config.md` all come from that declaration. This module only lists the sections. An empty file, or none, is a valid configuration.

mod page;

pub(crate) use page::{as_markdown, as_toml};
pub(crate) use weir_settings::{Problem, Problems, Setting};

use std::path::{Path, PathBuf};
use weir_acme::{CertificateSettings, ChallengeKind};
use weir_console::ConsoleSettings;
use weir_foundation::StoreSettings;
use weir_foundation::directory::DirectorySettings;
use weir_foundation::identity_provider::ProviderSettings;
use weir_lab::LabSettings;
use weir_mail::clamd_door::DoorSettings;
use weir_mail::delivery::{DeliverySettings, Way};
use weir_mail::inbound::InboundSettings;
use weir_mail::milter_door::MilterSettings;
use weir_mail::policy_door::PolicySettings;
use weir_mail::scan::{LabSettings as ScanLabSettings, QuarantineSettings, ScanSettings};
use weir_mail::submission::SubmissionSettings;
use weir_mail::throttle::ThrottleSettings;
use weir_settings::{ReadDocument, Reader};
use weir_web::exchange::{ExchangeSettings, HistorySettings};
use weir_web::proxy::{DoorSettings as ForwardAuthSettings, WebSettings};

/// A validated configuration. It has a field for each section; the scanners and the throttle's profiles have several sections each.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) throttle: ThrottleSettings,
    pub(crate) submission: SubmissionSettings,
    pub(crate) limits: weir_smtp::limits::SmtpLimits,
    pub(crate) inbound: InboundSettings,
    pub(crate) delivery: DeliverySettings,
    pub(crate) notices: weir_mail::notices::Settings,
    pub(crate) store: StoreSettings,
    pub(crate) scan: ScanSettings,
    pub(crate) scanners: weir_scan::panel::Settings,
    pub(crate) scan_lab: ScanLabSettings,
    pub(crate) clamd_door: DoorSettings,
    pub(crate) milter: MilterSettings,
    pub(crate) policy_service: PolicySettings,
    pub(crate) quarantine: QuarantineSettings,
    pub(crate) web: WebSettings,
    pub(crate) web_limits: weir_web::proxy::Limits,
    pub(crate) web_identity: weir_web::identity::Settings,
    pub(crate) web_forward_auth: ForwardAuthSettings,
    pub(crate) web_exchange: ExchangeSettings,
    pub(crate) web_history: HistorySettings,
    pub(crate) certificates: CertificateSettings,
    pub(crate) lab: LabSettings,
    pub(crate) console: ConsoleSettings,
    pub(crate) directory: DirectorySettings,
    pub(crate) identity_provider: ProviderSettings,
}

impl Config {
    /// Reads all sections, in the order in which they are shown.
    fn read(reader: &mut Reader<'_>) -> Config {
        let feeds;
        Config {
            throttle: ThrottleSettings::read(reader),
            submission: reader.read(),
            limits: reader.read(),
            inbound: reader.read(),
            delivery: reader.read(),
            notices: reader.read(),
            store: reader.read(),
            scan: {
                let scan: ScanSettings = reader.read();
                feeds = scan.stage.plan.limits.feeds();
                scan
            },
            scanners: weir_scan::panel::Settings::read(reader, feeds),
            scan_lab: reader.read(),
            clamd_door: reader.read(),
            milter: reader.read(),
            policy_service: reader.read(),
            quarantine: reader.read(),
            web: reader.read(),
            web_limits: reader.read(),
            web_identity: reader.read(),
            web_forward_auth: reader.read(),
            web_exchange: reader.read(),
            web_history: reader.read(),
            certificates: reader.read(),
            lab: reader.read(),
            console: reader.read(),
            directory: reader.read(),
            identity_provider: reader.read(),
        }
    }
}

impl Config {
    /// Checks rules that concern several sections.
    fn check(&self, reader: &mut Reader<'_>) {
        if self.clamd_door.is_on() && !self.scan.enabled {
            let hint = "set enabled = true under [scan], or listen nowhere";
            reader.blame(
                "scan.clamd_door",
                "listen",
                "nobody would look at what is sent here: the scan is off".into(),
                hint,
            );
        }
        if self.milter.is_on() && self.milter.scan && !self.scan.enabled {
            let hint = "set enabled = true under [scan], or scan = false here";
            reader.blame("milter", "scan", "nobody would look at the mail: the scan is off".into(), hint);
        }
        if self.milter.is_on() && self.milter.throttle && self.delivery.way == Way::Maildir {
            let hint = "say how it goes out: [delivery] way = \"smarthost\" or \"mx\"; see docs/doors.md";
            let what = "mail that is taken over would be put into folders on this machine, and never be sent".into();
            reader.blame("milter", "throttle", what, hint);
        }
        let asked = [("milter", self.milter.is_on()), ("policy_service", self.policy_service.is_on())];
        for (section, _) in asked.into_iter().filter(|(_, on)| *on && !self.submission.enabled) {
            let hint = "set enabled = true under [submission]; it may listen on this machine alone";
            reader.blame(section, "listen", "nobody would decide: there is no mail gate here".into(), hint);
        }
        if self.others_send() && self.stops_are_silent() {
            let hint = "set admin = \"you@example.org\" or webhook; or say that nobody is to be told: silent = true";
            reader.blame("notices", "admin", "nobody would be told when a user is stopped".into(), hint);
        }
        self.check_certificates(reader);
        self.check_forward_auth(reader);
        let own = &self.web_identity.cookie.name;
        if !own.is_empty() && self.web.sign_in_cookie == *own {
            let what = "this is the gate's own cookie, which everybody gets: a gate behind this one would make everybody known".to_owned();
            reader.blame("web", "sign_in_cookie", what, "name the cookie that the application sets at the sign-in");
        }
        self.check_standing(reader);
        if self.directory.is_on() && self.submission.dovecot_socket.is_some() {
            let what =
                "Dovecot checks all logins of people who send mail, so the directory would not be asked".to_owned();
            reader.blame(
                "sign_in.ldap",
                "servers",
                what,
                "let Dovecot ask the directory, or unset submission.dovecot_socket",
            );
        }
    }

    /// Cookies must live long enough for their owners to become known, and to stay so.
    fn check_standing(&self, reader: &mut Reader<'_>) {
        let (cookie, after) = (&self.web_identity.cookie, self.web.usual.admission.standing_after);
        if !cookie.name.is_empty() && after > cookie.standing_after_max() {
            let what = "visitors would not become known, or not stay known: this is more than a third of the time for which a cookie \
                        is good (web.identity.cookie_lifetime)"
                .to_owned();
            let hint = "make standing_after shorter, or cookie_lifetime under [web.identity] at least three times as long as it";
            reader.blame("web", "standing_after", what, hint);
        }
    }

    /// If other proxies ask Weir, there must be a backend for which they ask.
    fn check_forward_auth(&self, reader: &mut Reader<'_>) {
        let carried = self.web.backends.iter().any(|backend| backend.elsewhere);
        match (self.web_forward_auth.is_on(), carried && self.web.enabled) {
            (true, false) => reader.blame(
                "web.forward_auth",
                "listen",
                "no backend of [web] is one whose requests another proxy carries".into(),
                "name it: backends = [\"shop forward_auth slots=4\"] under [web]",
            ),
            (false, true) => reader.blame(
                "web",
                "backends",
                "a backend with forward_auth is there, and no proxy can ask for it".into(),
                "set listen or listen_unix under [web.forward_auth]",
            ),
            _ => {}
        }
    }

    /// Checks that something will answer the questions of the certificate authority.
    fn check_certificates(&self, reader: &mut Reader<'_>) {
        let settings = &self.certificates;
        let web = self.web.enabled && !self.web.backends.is_empty();
        let (what, hint) = match settings.challenge {
            ChallengeKind::Http if settings.listen.is_empty() && (!web || self.web.listen.is_empty()) => (
                "nobody would answer the authority's question: the web gate has no plain listener here",
                "let the web gate listen at port 80 (web.listen), or set certificates.listen = [\"0.0.0.0:80\"]",
            ),
            ChallengeKind::TlsAlpn if !web || self.web.listen_tls.is_empty() => (
                "nobody would answer the authority's question: the web gate does not speak HTTPS here",
                "let the web gate listen at port 443 (web.listen_tls), or set challenge = \"http-01\"",
            ),
            _ => return,
        };
        if settings.is_on() {
            reader.blame("certificates", "challenge", what.into(), hint);
        }
    }

    /// Whether the throttle also concerns mail of people who do not sit at this machine. Mail about which another mail server asks is
    /// theirs, too.
    fn others_send(&self) -> bool {
        let asked = (self.milter.is_on() && self.milter.throttle) || self.policy_service.is_on();
        self.submission.is_public() || asked || !self.submission.received_from.is_empty()
    }

    /// Whether nobody except the user's contact would learn that a user was stopped, and the settings do not say that this is intended.
    pub(crate) fn stops_are_silent(&self) -> bool {
        let heard = !self.notices.admin.is_empty() || self.notices.webhook.is_some() || self.notices.silent;
        self.submission.enabled && !self.throttle.learn_only && !heard
    }
}

/// Checks whether this text would be a valid configuration in this file.
pub(crate) fn check_text(text: &str, file: &Path) -> Result<(), Problems> {
    Loaded::from_text(text, Some(file)).map(drop)
}

/// A validated configuration together with where each value came from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The file that was read; none if there are only defaults.
    pub(crate) file: Option<PathBuf>,
    pub(crate) settings: Vec<Setting>,
    /// The sections, and what each is about.
    pub(crate) sections: Vec<(&'static str, String)>,
}

/// The option `--config`, for every verb that reads the configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ConfigArg {
    /// The configuration file [default: $WEIR_CONFIG, else /etc/weir/weir.toml if it exists, else the defaults only]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArg {
    pub(crate) fn load(&self) -> Result<Loaded, Problems> {
        Loaded::find(self.config.as_deref())
    }

    /// The file that was named on the command line.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The option as it was typed, for printing a command that repeats something; empty if it was not given.
    pub(crate) fn as_typed(&self) -> String {
        self.config.as_ref().map_or_else(String::new, |path| format!(" --config {}", path.display()))
    }
}

/// A configuration is small; anything larger is some other file.
const FILE_BYTES_MAX: u64 = 1 << 20;
pub(crate) const SYSTEM_FILE: &str = "/etc/weir/weir.toml";

impl Loaded {
    /// Loads `explicit`, else the file that `WEIR_CONFIG` names, else the system's, else the defaults.
    fn find(explicit: Option<&Path>) -> Result<Loaded, Problems> {
        let named = explicit.map(Path::to_owned).or_else(|| std::env::var_os("WEIR_CONFIG").map(PathBuf::from));
        match named.or_else(|| Some(PathBuf::from(SYSTEM_FILE)).filter(|path| path.try_exists().unwrap_or(true))) {
            Some(path) => Loaded::from_file(&path),
            None => Ok(Loaded::defaults()),
        }
    }

    /// The configuration without any file.
    pub(crate) fn defaults() -> Loaded {
        Loaded::from_text("", None).unwrap_or_else(|problems| unreachable!("the defaults are valid: {problems}"))
    }

    fn from_file(path: &Path) -> Result<Loaded, Problems> {
        let problem = |what: String, hint: &str| Problems::one(Some(path), Problem::of_file(what, hint));
        let unreadable = |error: std::io::Error| {
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                let hint = "run this as root (sudo), or as the user that runs Weir";
                return problem("may not be read by you: passwords may be in it".into(), hint);
            }
            problem(
                format!("cannot be read: {error}"),
                "check the path and its permissions; without a file Weir runs on defaults",
            )
        };
        let meta = std::fs::metadata(path).map_err(unreadable)?;
        if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
            return Err(problem(
                "is not a configuration file".into(),
                "a regular TOML file of at most 1 MiB is expected",
            ));
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
            problem(format!("line {line} is not UTF-8"), "save the file as UTF-8 text")
        })?;
        Loaded::from_text(&text, Some(path))
    }

    fn from_text(text: &str, file: Option<&Path>) -> Result<Loaded, Problems> {
        let mut reader = Reader::new(text);
        let config = Config::read(&mut reader);
        config.check(&mut reader);
        let ReadDocument { sections, settings, problems } = reader.finish();
        if problems.is_empty() {
            Ok(Loaded { config, file: file.map(Path::to_owned), settings, sections })
        } else {
            Err(Problems::new(file, problems))
        }
    }
}

#[cfg(test)]
mod tests;
