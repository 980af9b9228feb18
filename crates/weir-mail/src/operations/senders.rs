//! The operations on senders that people allow or block.

use super::{Actor, Backend, OperationError, OperationsParts, names, when};
use crate::inbound::senders;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_store::records::{SenderRecords, SenderRow};

/// More than this are a list for the spam filter.
const SENDERS_MAX: usize = 10_000;
const ABOUT_MAX: usize = 200;

/// What is said of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SenderVerdict {
    /// It is no spam, if SPF, DKIM or DMARC confirms it.
    Allow,
    /// It is not taken.
    Block,
}

impl SenderVerdict {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            SenderVerdict::Allow => "allow",
            SenderVerdict::Block => "block",
        }
    }
}

/// A sender to be allowed or blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSender {
    /// An address, or a domain, which is also everything below it.
    pub who: String,
    /// What is said of it.
    pub rule: SenderVerdict,
    /// Why.
    #[serde(default)]
    pub about: String,
}

/// A sender that is allowed or blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Sender")]
pub struct SenderView {
    /// The address or the domain.
    pub who: String,
    /// What is said of it.
    #[schemars(extend("enum" = ["allow", "block"]))]
    pub rule: String,
    /// Why.
    pub about: String,
    /// Who said so.
    pub by: String,
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

impl From<SenderRow> for SenderView {
    fn from(row: SenderRow) -> SenderView {
        SenderView { who: row.who, rule: row.rule, about: row.about, by: row.made_by, since: when(row.made_at) }
    }
}

/// What may be done to the list of senders. Cheap to clone.
#[derive(Clone)]
pub struct SenderOperations {
    senders: SenderRecords,
    clock: Clock,
    audit: AuditTrail,
    backend: Arc<dyn Backend>,
}

impl SenderOperations {
    pub(super) fn new(parts: &OperationsParts) -> SenderOperations {
        SenderOperations {
            senders: parts.foundation.records.senders(),
            clock: Arc::clone(&parts.foundation.clock),
            audit: AuditTrail::new(&parts.foundation),
            backend: Arc::clone(&parts.backend),
        }
    }

    /// All of them, in the order of names.
    pub async fn list(&self) -> Result<Vec<SenderView>, OperationError> {
        Ok(self.senders.all().await?.into_iter().map(SenderView::from).collect())
    }

    /// Allows or blocks a sender, from now on.
    pub async fn set(&self, new: &NewSender, actor: &Actor) -> Result<SenderView, OperationError> {
        let who = named(&new.who)?;
        let all = self.senders.all().await?;
        if all.len() >= SENDERS_MAX && all.iter().all(|known| known.who != who) {
            let what = format!("there are {SENDERS_MAX} senders on the list");
            return Err(OperationError::conflict(what, "remove some, or leave this to the spam filter"));
        }
        let about: String = new.about.trim().chars().filter(|c| !c.is_control()).take(ABOUT_MAX).collect();
        let row = SenderRow {
            who,
            rule: new.rule.as_str().to_owned(),
            about,
            made_by: actor.as_str().to_owned(),
            made_at: (self.clock)().0 as i64,
        };
        self.audit.write(actor, &format!("sender.{}", row.rule), &row.who, row.about.clone()).await?;
        self.senders.put(&row).await?;
        self.in_force().await?;
        Ok(row.into())
    }

    /// Removes what was said about a sender, who is then neither allowed nor blocked.
    pub async fn remove(&self, who: &str, actor: &Actor) -> Result<Vec<SenderView>, OperationError> {
        let who = named(who)?;
        let all = self.senders.all().await?;
        let Some(known) = all.into_iter().find(|known| known.who == who) else {
            let what = format!("{who} is neither allowed nor blocked");
            return Err(OperationError::unknown(what, "`weir senders list` shows who is"));
        };
        self.audit.write(actor, "sender.remove", &who, format!("it was on {}", known.rule)).await?;
        self.senders.remove(&who).await?;
        self.in_force().await?;
        self.list().await
    }

    /// It takes effect at once for mail that this process accepts.
    async fn in_force(&self) -> Result<(), OperationError> {
        match self.backend.senders() {
            Some(list) => Ok(list.read().await?),
            None => Ok(()),
        }
    }
}

fn named(text: &str) -> Result<String, OperationError> {
    senders::name(text).map_err(|why| {
        let what = format!("{:?} {why}", names::shown(text));
        OperationError::invalid(what, "name an address such as ann@example.org, or a domain such as example.org")
    })
}
