//! Sign-ins by an identity provider (OpenID Connect Core 1.0): the browser is sent to the provider and comes back with a code. In exchange
//! for the code, the provider tells us who the person is.
//!
//! This is the authorization code flow with PKCE, state and nonce. A sign-in is bound to the browser that began it (`attempt`). Its code is
//! exchanged over TLS, and the resulting token must be signed with a key of the provider, for us, now, and for this sign-in (`id_token`).
//! Claims that the token lacks are fetched from the provider's userinfo endpoint. The provider's metadata and keys are cached for a while.
//! A failure is cached for a few seconds too, so that not everybody has to wait for a provider that is slow or down. Local accounts do not
//! need the provider.

mod attempt;
mod https;
mod id_token;
mod keys;
mod metadata;
mod remembered;
mod settings;

pub use id_token::TokenProblem;
pub use settings::ProviderSettings;

use crate::clock::wall_clock;
use crate::login_queue::LoginQueue;
use crate::names;
use crate::role::Role;
use crate::role_rule::RoleRule;
use attempt::{Attempt, Attempts};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use https::{HttpsClient, encoded, form};
use id_token::{Claims, Expected, verify};
use keys::Keys;
use metadata::{Metadata, SecretIn};
use remembered::Remembered;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// At most so many sign-ins are checked at once, and so many wait in each of the two lines of the queue.
const AT_ONCE: usize = 16;
const WAITING_MAX: usize = 128;
/// Longer codes are refused, and longer addresses of pages to go to are forgotten.
const CODE_BYTES_MAX: usize = 4_096;
const NEXT_BYTES_MAX: usize = 1_000;

/// Somebody for whom the provider vouches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvidedPerson {
    /// The name, as the provider spells it.
    pub name: String,
    /// What their groups let them do at the console.
    pub role: Role,
    /// The identity of the person at the provider, whatever they are called: the issuer and the claim `sub`.
    pub subject: String,
}

/// A sign-in that has begun.
#[derive(Debug)]
pub struct BegunSignIn {
    /// The address to which the browser is sent.
    pub location: String,
    /// The sealed attempt, which the browser brings back in a cookie.
    pub sealed: String,
}

/// What a browser brings back from the provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Callback<'a> {
    /// The sealed attempt that the browser got when the sign-in began.
    pub sealed: &'a str,
    /// The parameter `state`.
    pub state: &'a str,
    /// The parameter `code`.
    pub code: &'a str,
    /// The parameter `iss`.
    pub issuer: Option<&'a str>,
    /// The parameter `error`.
    pub error: Option<&'a str>,
}

/// An identity provider whose people may sign in. Cheap to clone.
#[derive(Clone)]
pub struct IdentityProvider {
    shared: Arc<Shared>,
}

struct Shared {
    settings: ProviderSettings,
    secret: Option<String>,
    client: HttpsClient,
    attempts: Attempts,
    login_queue: LoginQueue,
    metadata: Remembered<Metadata>,
    keys: Remembered<Keys>,
}

impl IdentityProvider {
    /// Reads the files that the settings name. None if no provider is configured. The provider itself is not asked yet, because it may be
    /// down when Weir starts.
    pub fn open(settings: &ProviderSettings) -> Result<Option<IdentityProvider>, ProviderError> {
        if !settings.is_on() {
            return Ok(None);
        }
        let secret = match &settings.client_secret_file {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|problem| ProviderError::File { path: path.clone(), problem })?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
            None => None,
        };
        Ok(Some(IdentityProvider {
            shared: Arc::new(Shared {
                client: HttpsClient::new(settings.ca_file.as_deref()).map_err(ProviderError::Away)?,
                secret,
                attempts: Attempts::new(),
                login_queue: LoginQueue::new(AT_ONCE, WAITING_MAX),
                metadata: Remembered::default(),
                keys: Remembered::default(),
                settings: settings.clone(),
            }),
        }))
    }

    /// The provider's host, by which people know it.
    pub fn host(&self) -> &str {
        let issuer = self.shared.settings.issuer.trim_start_matches("https://");
        issuer.split('/').next().unwrap_or(issuer)
    }

    /// How long somebody stays signed in before the provider is asked again.
    pub fn session(&self) -> Duration {
        self.shared.settings.session
    }

    /// Begins a sign-in. The browser will come back to `redirect`, and goes on to `next` afterwards.
    pub async fn begin(&self, redirect: &str, next: &str) -> Result<BegunSignIn, ProviderError> {
        let shared = &self.shared;
        let metadata = shared.in_time(shared.metadata()).await?;
        let next = if next.len() <= NEXT_BYTES_MAX { next } else { "" };
        let attempt = Attempt::new(redirect, next, now_s());
        let scopes = ["openid"].into_iter().chain(shared.settings.scopes.iter().map(String::as_str));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &shared.settings.client_id),
            ("redirect_uri", redirect),
            ("scope", &scopes.collect::<Vec<_>>().join(" ")),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &attempt.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = metadata.authorization_endpoint.split('#').next().unwrap_or_default();
        let joint = if endpoint.contains('?') { '&' } else { '?' };
        Ok(BegunSignIn { location: format!("{endpoint}{joint}{query}"), sealed: shared.attempts.seal(&attempt) })
    }

    /// Finishes a sign-in: the person, and the page that they wanted to see.
    pub async fn end(&self, callback: Callback<'_>, from: IpAddr) -> Result<(ProvidedPerson, String), ProviderError> {
        let shared = &self.shared;
        let attempt = shared.attempts.come_back(callback.sealed, callback.state, now_s());
        let attempt = attempt.ok_or(ProviderError::NotBegun)?;
        let turn = shared.login_queue.enter(Some(from)).await.ok_or(ProviderError::Busy)?;
        let person = shared.in_time(shared.person(callback, &attempt)).await;
        if person.as_ref().is_err_and(|error| !error.is_ours_to_wait_for()) {
            turn.failed();
        }
        Ok((person?, attempt.next))
    }
}

impl Shared {
    /// Limits how long somebody waits for the provider.
    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, ProviderError>>) -> Result<T, ProviderError> {
        let silent = |_| ProviderError::Away(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(self.settings.timeout, asked).await.map_err(silent)?
    }

    async fn person(&self, callback: Callback<'_>, attempt: &Attempt) -> Result<ProvidedPerson, ProviderError> {
        let metadata = self.metadata().await?;
        let wanted = callback.issuer.is_some() || metadata.authorization_response_iss_parameter_supported;
        if wanted && callback.issuer != Some(&*self.settings.issuer) {
            return Err(ProviderError::Token(TokenProblem::Issuer));
        }
        if let Some(error) = callback.error {
            let word = error.chars().filter(|letter| letter.is_ascii_graphic()).take(60).collect();
            return Err(ProviderError::Declined(word));
        }
        if callback.code.is_empty() || callback.code.len() > CODE_BYTES_MAX {
            return Err(ProviderError::NotBegun);
        }
        let tokens = self.tokens(&metadata, callback.code, attempt).await?;
        let claims = self.claims(&metadata, &tokens.id_token, &attempt.nonce).await?;
        let claims = self.completed(&metadata, claims, tokens.access_token.as_deref()).await?;
        self.named(&claims)
    }

    async fn metadata(&self) -> Result<Arc<Metadata>, ProviderError> {
        let issuer = self.settings.issuer.clone();
        let fetch = document(self.client.clone(), Metadata::address(&issuer), move |octets: &[u8]| {
            Metadata::read(octets, &issuer)
        });
        self.metadata.value(self.settings.timeout, fetch).await
    }

    async fn keys(&self, metadata: &Metadata) -> Result<Arc<Keys>, ProviderError> {
        let fetch = document(self.client.clone(), metadata.jwks_uri.clone(), Keys::read);
        self.keys.value(self.settings.timeout, fetch).await
    }

    /// Exchanges a code for tokens.
    async fn tokens(&self, metadata: &Metadata, code: &str, attempt: &Attempt) -> Result<Tokens, ProviderError> {
        let id = self.settings.client_id.as_str();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &attempt.redirect),
            ("code_verifier", &attempt.verifier),
        ];
        let mut authorization = None;
        match (&self.secret, metadata.secret_in()) {
            (None, _) => fields.push(("client_id", id)),
            (Some(secret), Some(SecretIn::Header)) => {
                let pair = format!("{}:{}", encoded(id), encoded(secret));
                authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
            }
            (Some(secret), Some(SecretIn::Form)) => fields.extend([("client_id", id), ("client_secret", secret)]),
            (Some(_), None) => {
                return Err(ProviderError::Strange("it takes no client secret as Basic or in a form".to_owned()));
            }
        }
        let (status, body) =
            self.client.post(&metadata.token_endpoint, authorization.as_deref(), form(&fields)).await?;
        if status.is_server_error() {
            return Err(ProviderError::Strange(format!("it answers {} to a code", status.as_u16())));
        }
        if !status.is_success() {
            let refusal: ErrorResponse = serde_json::from_slice(&body).unwrap_or_default();
            let word: String = refusal.error.chars().filter(|letter| letter.is_ascii_graphic()).take(60).collect();
            return match word.as_str() {
                // Only an operator can correct these.
                "invalid_client" | "unauthorized_client" => Err(ProviderError::Client(word)),
                _ => Err(ProviderError::Declined(word)),
            };
        }
        serde_json::from_slice(&body).map_err(|_| ProviderError::Token(TokenProblem::Unreadable))
    }

    /// The claims of a token, if it is valid. Providers change their keys, some without a new key id. So if no key fits, the keys are
    /// fetched again.
    async fn claims(&self, metadata: &Metadata, token: &str, nonce: &str) -> Result<Claims, ProviderError> {
        let (issuer, client_id) = (self.settings.issuer.as_str(), self.settings.client_id.as_str());
        let expected = Expected { issuer, client_id, nonce, now_s: now_s() };
        match verify(token, &*self.keys(metadata).await?, expected) {
            Err(TokenProblem::UnknownKey | TokenProblem::Signature) => {
                self.keys.forget_older_than(Remembered::<Keys>::AGAIN_AFTER).await;
                Ok(verify(token, &*self.keys(metadata).await?, expected)?)
            }
            other => Ok(other?),
        }
    }

    /// Adds the claims that the token lacks. Many providers put them only into the answer of the userinfo endpoint.
    async fn completed(
        &self,
        metadata: &Metadata,
        mut claims: Claims,
        access: Option<&str>,
    ) -> Result<Claims, ProviderError> {
        let settings = &self.settings;
        let groups_matter = !settings.roles.is_empty() && !claims.contains_key(&settings.groups_claim);
        let lacks = groups_matter || !claims.contains_key(&settings.name_claim);
        let (Some(endpoint), Some(access), true) = (&metadata.userinfo_endpoint, access, lacks) else {
            return Ok(claims);
        };
        let (status, body) = self.client.get(endpoint, Some(&format!("Bearer {access}"))).await?;
        if !status.is_success() {
            return Err(ProviderError::Strange(format!("it answers {} at {endpoint}", status.as_u16())));
        }
        let more: Claims = serde_json::from_slice(&body)
            .map_err(|_| ProviderError::Strange("what it says of people cannot be read".to_owned()))?;
        // An answer about somebody else must not be used (section 5.3.2).
        if more.get("sub") != claims.get("sub") {
            return Err(ProviderError::Strange("it speaks of somebody else than its token does".to_owned()));
        }
        for (name, value) in more {
            claims.entry(name).or_insert(value);
        }
        Ok(claims)
    }

    fn named(&self, claims: &Claims) -> Result<ProvidedPerson, ProviderError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let name = text(&self.settings.name_claim).filter(|name| names::login(name).is_ok());
        // An address that was not verified may be anything that the person typed at the provider.
        let proved = match claims.get("email_verified") {
            Some(Value::Bool(proved)) => *proved,
            Some(Value::String(word)) => word == "true",
            _ => false,
        };
        let name = name.filter(|_| self.settings.name_claim != "email" || proved).ok_or(ProviderError::NoName)?;
        let groups: Vec<&str> = match claims.get(&self.settings.groups_claim) {
            Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(group)) => vec![group],
            _ => Vec::new(),
        };
        let is_in = |rule: &&RoleRule| groups.contains(&rule.group.as_str());
        let role = self.settings.roles.iter().filter(is_in).map(|rule| rule.role).max();
        let role = role.or(self.settings.users.then_some(Role::User));
        let subject = format!("{} {}", self.settings.issuer, text("sub").unwrap_or_default());
        match role {
            Some(role) => Ok(ProvidedPerson { name: name.to_owned(), role, subject }),
            None => Err(ProviderError::NoRole(name.to_owned())),
        }
    }
}

async fn document<T>(
    client: HttpsClient,
    address: String,
    read: impl Fn(&[u8]) -> Result<T, String>,
) -> Result<T, ProviderError> {
    match client.get(&address, None).await? {
        (status, body) if status.is_success() => read(&body).map_err(ProviderError::Strange),
        (status, _) => Err(ProviderError::Strange(format!("it answers {} at {address}", status.as_u16()))),
    }
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: Option<String>,
}

#[derive(Deserialize, Default)]
struct ErrorResponse {
    #[serde(default)]
    error: String,
}

fn now_s() -> u64 {
    wall_clock().0 / 1_000_000_000
}

impl fmt::Debug for IdentityProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityProvider").field("issuer", &self.shared.settings.issuer).finish_non_exhaustive()
    }
}

/// For fuzzing: a token, and everything else that a provider sends.
pub(crate) mod fuzz {
    use super::*;

    /// A set of keys. One of them has signed a token for `weir` from `https://id.example.org`, with the nonce `n`.
    const KEYS: &[u8] = include_bytes!("fuzz_keys.json");

    /// Whether these octets are a valid token.
    pub(crate) fn is_believed(token: &[u8]) -> bool {
        let Ok(keys) = Keys::read(KEYS) else { return false };
        let expected =
            Expected { issuer: "https://id.example.org", client_id: "weir", nonce: "n", now_s: 1_950_000_000 };
        std::str::from_utf8(token).is_ok_and(|token| verify(token, &keys, expected).is_ok())
    }

    /// Reads the octets as everything that a provider sends, and as what a browser brings back.
    pub(crate) fn read(octets: &[u8]) {
        let _ = Metadata::read(octets, "https://id.example.org");
        let _ = Keys::read(octets);
        let _ = serde_json::from_slice::<Tokens>(octets);
        let text = String::from_utf8_lossy(octets);
        let attempts = Attempts::new();
        assert!(attempts.come_back(&text, &text, now_s()).is_none(), "nobody has sealed this");
    }
}

/// Why nobody was signed in.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The connection or its TLS failed, or there was no answer in time.
    #[error("it does not answer: {0}")]
    Away(#[from] io::Error),
    /// The provider did not answer a moment ago, so it was not asked again.
    #[error("it did not answer a moment ago: {0}")]
    StillAway(String),
    /// The provider sent something that cannot be used.
    #[error("{0}")]
    Strange(String),
    /// The provider does not accept our client id and secret.
    #[error("it does not take sign_in.oidc.client_id with its secret ({0})")]
    Client(String),
    /// Too many sign-ins wait already.
    #[error("too many sign-ins at once; try again")]
    Busy,
    /// The browser brought back something that it was not given, or came too late, or came a second time.
    #[error("this sign-in was not begun in this browser, was used already, or took too long")]
    NotBegun,
    /// The provider refused the sign-in.
    #[error("it declined ({0})")]
    Declined(String),
    /// The token is not accepted.
    #[error("{0}")]
    Token(#[from] TokenProblem),
    /// The provider gave no usable name.
    #[error("it gives you no name that can be used here (sign_in.oidc.name_claim)")]
    NoName,
    /// The person is in no group that may sign in.
    #[error("{} is in no group that may sign in here", names::shown(.0))]
    NoRole(String),
    /// A file that the settings name cannot be read.
    #[error("{} cannot be read: {problem}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// Why it cannot be read.
        problem: io::Error,
    },
}

impl ProviderError {
    /// Whether the failure says nothing about the person: the provider is away or misconfigured, or too many sign-ins wait. Then their
    /// address is not counted as suspicious.
    pub fn is_ours_to_wait_for(&self) -> bool {
        use ProviderError::{Away, Busy, Client, File, StillAway, Strange};
        matches!(self, Away(_) | StillAway(_) | Strange(_) | Client(_) | Busy | File { .. })
    }
}
