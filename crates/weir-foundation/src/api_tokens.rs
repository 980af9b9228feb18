//! API tokens, which programs use instead of a password. Each has a scope.
//!
//! A token is 256 random bits. The records keep only a digest, so somebody who reads the records learns no token. There are few tokens, so
//! all of them are in one document, which every request reads: a revoked token stops working at once.

use crate::audit::AuditTrail;
use crate::clock::Clock;
use crate::console_accounts::Role;
use crate::date::rfc3339;
use crate::secret::{digest, fresh_token};
use crate::site_list::SiteList;
use crate::{Actor, Foundation, OperationError, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

const KEPT: &str = "console.tokens";
const TOKENS_MAX: usize = 1_000;
const DAYS_MAX: u32 = 3_650;
const DAY_NS: i64 = 86_400_000_000_000;
/// The last use of a token is written down at most once in this time.
const USED_EVERY_NS: i64 = 3_600_000_000_000;

/// What a token may do. Each scope includes the scopes above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read the figures and whether all is well, but nothing about any message.
    Metrics,
    /// Read everything except accounts and tokens.
    Read,
    /// Do what an operator may do.
    Operate,
    /// Everything.
    Admin,
}

impl Scope {
    /// The scope as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Metrics => "metrics",
            Scope::Read => "read",
            Scope::Operate => "operate",
            Scope::Admin => "admin",
        }
    }

    /// The scope that this word names.
    pub fn parse(word: &str) -> Option<Scope> {
        [Scope::Metrics, Scope::Read, Scope::Operate, Scope::Admin].into_iter().find(|scope| scope.as_str() == word)
    }

    /// The role that a person needs for what needs this scope.
    pub fn role(self) -> Role {
        match self {
            Scope::Metrics | Scope::Read | Scope::Operate => Role::Operator,
            Scope::Admin => Role::Admin,
        }
    }

    /// Whether a token with this scope may change anything.
    pub fn may_change(self) -> bool {
        self >= Scope::Operate
    }
}

/// A token to be made.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What the token is for; the audit trail shows this name.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// For how many days it is valid; 0 means for ever.
    #[serde(default)]
    pub days: u32,
}

/// A token as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct TokenView {
    /// What it is for.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// When it was made.
    #[schemars(extend("format" = "date-time"))]
    pub created: String,
    /// Who made it.
    pub by: String,
    /// Until when it is valid; missing if it is valid for ever.
    #[schemars(extend("format" = "date-time"))]
    pub expires: Option<String>,
    /// When it was last used, to the hour; missing if it never was.
    #[schemars(extend("format" = "date-time"))]
    pub used: Option<String>,
}

/// A new token. This is the only time that the token itself is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// What a list shows of it.
    #[serde(flatten)]
    pub view: TokenView,
    /// The token itself.
    pub token: String,
}

impl TokenView {
    /// The program that uses this token, as the audit trail names it.
    pub fn actor(&self) -> Actor {
        Actor::new(&format!("token:{}", self.name))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Token {
    name: String,
    scope: Scope,
    digest: String,
    created_at: i64,
    by: String,
    expires_at: Option<i64>,
    #[serde(default)]
    used_at: Option<i64>,
}

impl Token {
    fn view(&self) -> TokenView {
        TokenView {
            name: self.name.clone(),
            scope: self.scope,
            created: rfc3339(self.created_at),
            by: self.by.clone(),
            expires: self.expires_at.map(rfc3339),
            used: self.used_at.map(rfc3339),
        }
    }
}

/// The tokens of the site. Cheap to clone.
#[derive(Clone)]
pub struct ApiTokens {
    stored: SiteList<Token>,
    audit: AuditTrail,
    clock: Clock,
}

impl ApiTokens {
    /// The tokens in these records.
    pub fn new(foundation: &Foundation) -> ApiTokens {
        ApiTokens {
            stored: SiteList::new(foundation, KEPT, "the tokens", |token| &token.name),
            audit: AuditTrail::new(foundation),
            clock: Arc::clone(&foundation.clock),
        }
    }

    /// All tokens, ordered by name.
    pub async fn list(&self) -> Result<Vec<TokenView>, OperationError> {
        Ok(self.stored.read().await?.iter().map(Token::view).collect())
    }

    /// Makes a token.
    pub async fn add(&self, new: NewToken, actor: &Actor) -> Result<TokenMade, OperationError> {
        names::login(&new.name)?;
        if new.days > DAYS_MAX {
            let hint = "0 days is for ever; a token can be revoked at any time";
            return Err(OperationError::invalid(format!("a token is good for at most {DAYS_MAX} days"), hint));
        }
        let (secret, now) = (format!("weir_{}", fresh_token()), (self.clock)().0 as i64);
        let token = Token {
            name: new.name,
            scope: new.scope,
            digest: digest(&secret),
            created_at: now,
            by: actor.as_str().to_owned(),
            expires_at: (new.days > 0).then(|| now.saturating_add(i64::from(new.days).saturating_mul(DAY_NS))),
            used_at: None,
        };
        let view = token.view();
        let add = |tokens: &mut Vec<Token>| {
            if tokens.iter().any(|known| known.name == token.name) {
                let what = format!("there is already a token {}", names::shown(&token.name));
                return Err(OperationError::conflict(what, "revoke it first, or take another name"));
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(OperationError::conflict(format!("there are {TOKENS_MAX} tokens"), "revoke one first"));
            }
            tokens.push(token.clone());
            Ok(())
        };
        self.stored.change(add).await?;
        let until = view.expires.as_deref().map_or_else(|| "for ever".to_owned(), |until| format!("until {until}"));
        self.audit.write(actor, "token.add", &view.name, format!("scope {}, {until}", view.scope.as_str())).await?;
        Ok(TokenMade { view, token: secret })
    }

    /// Revokes a token. It stops working at once.
    pub async fn revoke(&self, name: &str, actor: &Actor) -> Result<(), OperationError> {
        let revoke = |tokens: &mut Vec<Token>| {
            let place = tokens.iter().position(|token| token.name == name).ok_or_else(|| {
                let hint = "`weir console token list` shows all";
                OperationError::unknown(format!("there is no token {}", names::shown(name)), hint)
            })?;
            Ok(tokens.remove(place))
        };
        let revoked = self.stored.change(revoke).await?;
        self.audit.write(actor, "token.revoke", name, format!("scope {}", revoked.scope.as_str())).await
    }

    /// The token with this secret, if there is one and it is still valid.
    pub async fn known(&self, secret: &str) -> Result<Option<TokenView>, OperationError> {
        let (digest, now) = (digest(secret), (self.clock)().0 as i64);
        let good = |token: &Token| token.digest == digest && token.expires_at.is_none_or(|until| now < until);
        let Some(token) = self.stored.read().await?.into_iter().find(good) else { return Ok(None) };
        if token.used_at.is_none_or(|used| now.saturating_sub(used) > USED_EVERY_NS) {
            self.note_use(&digest, now).await;
        }
        Ok(Some(token.view()))
    }

    /// Writes down that a token was used. If that fails, the program may go on all the same.
    async fn note_use(&self, digest: &str, now: i64) {
        // The token may have been revoked meanwhile.
        let note = |tokens: &mut Vec<Token>| {
            tokens.iter_mut().filter(|token| token.digest == digest).for_each(|token| token.used_at = Some(now));
            Ok(())
        };
        if let Err(error) = self.stored.change(note).await {
            tracing::warn!(%error, "the use of a token could not be written down");
        }
    }
}

impl fmt::Debug for ApiTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiTokens").finish_non_exhaustive()
    }
}
