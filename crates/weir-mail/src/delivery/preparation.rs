//! Prepares the text of a message for one server: converts it if the server needs that, then signs it.

use super::conversion::{self, Converted, Needs, Survey};
use super::ledger::{Ledger, LedgerError, StoredBody};
use super::message::OutgoingMessage;
use super::replaced::{WithoutReplaced, without_replaced};
use std::sync::Arc;
use weir_core::time::Instant;
use weir_smtp::client::capabilities::Capabilities;
use weir_smtp::client::content::{BodySource, Content, ContentParts, look_through};
use weir_smtp::client::fitness::Plan;
use weir_smtp::dkim::{Keyring, Signing};
use weir_smtp::outcome::DeliveryOutcome;

/// What is sent.
pub(super) enum Prepared<B: StoredBody> {
    /// The message as it was handed in.
    Same(Content<B>),
    /// The message in a form that the server takes.
    Converted(Box<Content<Converted<WithoutReplaced<B>>>>),
}

/// What is known of a delivery before its text is.
pub(super) struct Preparation<'a, L> {
    pub(super) message: &'a OutgoingMessage,
    pub(super) ledger: &'a L,
    pub(super) keyring: Arc<Keyring>,
    pub(super) offered: Capabilities,
    pub(super) peer: &'a Arc<str>,
    pub(super) now: Instant,
}

impl<L: Ledger> Preparation<'_, L> {
    /// The text, and how it is declared.
    pub(super) async fn prepare(&self) -> Result<(Plan, Prepared<L::Body>), DeliveryOutcome> {
        let Preparation { message, offered, .. } = self;
        self.check_header().await?;
        let seven_bit = message.sender.eight_bit && !offered.eight_bit;
        let needs = Needs { seven_bit, short_lines: message.long_lines };
        if needs != Needs::default() {
            let surveyed = conversion::survey(&message.added, self.body()?, needs).await;
            if let Some(survey) = surveyed.map_err(|outcome| outcome.by(self.peer))? {
                return self.converted(Arc::new(survey)).await;
            }
        }
        let content = self.content().await.map_err(DeliveryOutcome::from)?;
        let size = match &content {
            Content::Whole(parts) => parts.length() as u64,
            Content::Stream { added, .. } => message.size_bytes + *added as u64,
        };
        Ok((self.plan(size)?, Prepared::Same(content)))
    }

    fn plan(&self, size: u64) -> Result<Plan, DeliveryOutcome> {
        Plan::new(&self.message.sender, size, self.offered, self.peer)
    }

    /// The message as it was handed in, but for a subject that another one replaces.
    fn body(&self) -> Result<WithoutReplaced<L::Body>, DeliveryOutcome> {
        let body = self.ledger.body(self.message.id).map_err(DeliveryOutcome::from)?;
        Ok(WithoutReplaced::new(body, &self.message.added))
    }

    /// A message that was declared international must have a plain header where the server does not take such mail.
    async fn check_header(&self) -> Result<(), DeliveryOutcome> {
        let plan = self.plan(self.message.size_bytes)?;
        if !plan.plain_header {
            return Ok(());
        }
        let eight_bit = look_through(self.body()?).await.map_err(DeliveryOutcome::from)?;
        plan.judge(eight_bit || !self.message.added.is_ascii(), self.peer)
    }

    /// The message in the form that the survey asks for. It is read once for its length and its signature, which stands before it, and
    /// once more when it is sent.
    async fn converted(&self, survey: Arc<Survey>) -> Result<(Plan, Prepared<L::Body>), DeliveryOutcome> {
        let convert = || Ok::<_, DeliveryOutcome>(Converted::new(&self.message.added, self.body()?, &survey));
        let (mut signing, mut size, mut text) = (Signing::default(), 0, convert()?);
        while let Some(piece) = text.next().await? {
            signing.write(&piece);
            size += piece.len() as u64;
        }
        let head = self.signature(signing);
        let plan = self.plan(size + head.len() as u64)?;
        let content = Content::Stream { added: head.len(), head, rest: convert()? };
        Ok((plan, Prepared::Converted(Box::new(content))))
    }

    /// The header field of our signature; empty for none.
    fn signature(&self, signing: Signing) -> Vec<u8> {
        if !self.signs() {
            return Vec::new();
        }
        signing.finish(&self.keyring, self.now.0 / 1_000_000_000).map(String::into_bytes).unwrap_or_default()
    }

    fn signs(&self) -> bool {
        self.message.sign && !self.keyring.is_empty()
    }

    async fn content(&self) -> Result<Content<L::Body>, LedgerError> {
        let Preparation { message, ledger, .. } = self;
        let mut body = ledger.body(message.id)?;
        let first = body.next().await?.unwrap_or_else(|| Vec::new().into());
        let whole = first.len() as u64 >= message.size_bytes;
        let first = without_replaced(first, &message.added);
        let mut added = Vec::new();
        if self.signs() {
            let mut signing = Signing::default();
            signing.write(message.added.as_bytes());
            signing.write(&first);
            if !whole {
                // The signature stands before the text that it is about, so a long text is read twice.
                while let Some(piece) = body.next().await? {
                    signing.write(&piece);
                }
                body = ledger.body(message.id)?;
                body.next().await?;
            }
            added = self.signature(signing);
        }
        added.extend_from_slice(message.added.as_bytes());
        if whole {
            return Ok(Content::Whole(ContentParts { added: added.into(), body: first }));
        }
        let length = added.len();
        added.extend_from_slice(&first);
        Ok(Content::Stream { added: length, head: added, rest: body })
    }
}
