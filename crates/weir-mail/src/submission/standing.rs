//! Finds out who a client is, and whether they may send now.
//!
//! A login is checked when it happens. Whether the account is still there, and its locks and stops, are checked again with each mail, because
//! a session may have begun at another relay, or while they were being set.

use super::{Case, Identity, Submission};
use crate::intake::{MailHeader, Named, belongs, check_from};
use weir_smtp::address_key::AddressKey;
use weir_smtp::envelope::MailFrom;
use weir_smtp::network::IpNetwork;
use weir_smtp::peer::SmtpPeer;
use weir_smtp::reply::{Reply, Status};
use weir_store::records::{RecordsError, UserRow};

impl Submission {
    /// Whose throttle this client's mail counts against.
    pub(super) fn identity_of(&self, peer: &SmtpPeer) -> Option<String> {
        match self.shared.settings.identity {
            Identity::Login => peer.user.as_deref().map(str::to_owned),
            Identity::ClientAddress => {
                let settings = &self.shared.settings;
                let may_send = settings.takes_from(peer.client);
                may_send.then(|| AddressKey::name(peer.client, settings.ipv6_prefix_bits))
            }
        }
    }

    /// The throttle is not asked about recipients whom the user trusts, but a stop holds for them too. An exempt user has no stop.
    pub(super) async fn unless_stopped(&self, case: &Case<'_>) -> Result<(), Reply> {
        let exempt = case.user.is_some_and(|user| user.profile == "exempt");
        if exempt || case.taken_before || self.shared.settings.learn_only {
            return Ok(());
        }
        self.check_stop(case.identity).await
    }

    pub(super) async fn check_stop(&self, identity: &str) -> Result<(), Reply> {
        match self.shared.records.throttles().find(identity).await {
            Ok(Some(row)) if row.stopped_at.is_some() => Err(self.stopped_reply(identity)),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "the records do not answer");
                Err(Reply::new(451, Status(4, 3, 0), "the throttle cannot decide now, try again later"))
            }
        }
    }

    /// The user of this name. Where addresses are throttled, an address may have an account for its contact and parameters, and is
    /// no guest of Dovecot's.
    pub(super) async fn user(&self, name: &str) -> Result<Option<UserRow>, Reply> {
        let accounts = &self.shared.accounts;
        let user = if self.shared.settings.identity == Identity::ClientAddress && name.parse::<IpNetwork>().is_ok() {
            accounts.of_address(name).await
        } else {
            accounts.user(name).await
        };
        user.map_err(|error| no_user(&error))
    }

    /// Whom a listed peer names in the header.
    pub(super) fn named<'h>(&self, peer: &SmtpPeer, header: &'h MailHeader) -> Option<Named<'h>> {
        header.named().filter(|_| self.shared.settings.reads_received_from(peer))
    }

    /// Where the user was who wrote: for a peer that names users, the client that it names, and not the peer itself.
    pub(super) fn source(&self, peer: &SmtpPeer, header: &MailHeader) -> String {
        match self.named(peer, header) {
            Some(named) => named.client.map_or_else(|| "unknown".to_owned(), |client| client.to_string()),
            None => peer.client.to_string(),
        }
    }

    /// Whose mail it is: whom a listed peer names in the header, or who the client is. Refuses those who are locked, and senders that
    /// are not theirs.
    pub(super) async fn whose(
        &self,
        peer: &SmtpPeer,
        sender: &MailFrom,
        header: &MailHeader,
    ) -> Result<(String, Option<UserRow>), Reply> {
        let settings = &self.shared.settings;
        let named = self.named(peer, header);
        let identity = match named {
            Some(named) => self.shared.accounts.spelled(named.login).await.map_err(|error| no_user(&error))?,
            // It must not count as mail of the peer itself: that would lead past the throttle, the stop and the lock of whoever it is.
            None if settings.reads_received_from(peer) && header.names_unclearly() => return Err(unclear()),
            None => self.identity_of(peer).ok_or_else(|| self.nobody())?,
        };
        let user = self.user(&identity).await?;
        if named.is_none() {
            self.check_removed(&identity, user.as_ref())?;
        }
        user.as_ref().map_or(Ok(()), check_lock)?;
        // Nobody knew the user when MAIL and the header came by. Whose addresses are not known here is left to the peer.
        if let (Some(_), true, Some(user)) = (named, settings.sender_must_match, &user) {
            check_owned(user, sender)?;
            check_from(header, sender.mailbox.is_some(), &user.addresses)?;
        }
        Ok((identity, user))
    }

    /// Whoever has logged in had an account, or is a guest of Dovecot's or a directory's. If nobody is known by the name any more, the account
    /// was removed during the session; without it, nothing would say any more as whom its user may send.
    fn check_removed(&self, login: &str, user: Option<&UserRow>) -> Result<(), Reply> {
        match user {
            None if self.shared.settings.identity == Identity::Login => {
                let text = format!("the account {login} does not exist any more");
                Err(Reply::new(535, Status(5, 7, 8), text))
            }
            _ => Ok(()),
        }
    }

    /// Whether this client may send as this sender. What the throttle says is known when the mail is here.
    pub(super) async fn check_sender(&self, peer: &SmtpPeer, identity: &str, sender: &MailFrom) -> Result<(), Reply> {
        let settings = &self.shared.settings;
        let by_address = settings.identity == Identity::ClientAddress;
        if by_address && settings.reads_received_from(peer) {
            // The header may name somebody whom a stop or lock of this address does not concern.
            return Ok(());
        }
        let user = self.user(identity).await?;
        self.check_removed(identity, user.as_ref())?;
        user.as_ref().map_or(Ok(()), check_lock)?;
        if by_address {
            let judged = !settings.learn_only && user.as_ref().is_none_or(|user| user.profile != "exempt");
            return if judged { self.check_stop(identity).await } else { Ok(()) };
        }
        let Some(user) = user else { return Ok(()) };
        if settings.sender_must_match { check_owned(&user, sender) } else { Ok(()) }
    }

    /// What somebody hears who may not hand in mail here.
    pub(super) fn nobody(&self) -> Reply {
        match self.shared.settings.identity {
            Identity::Login => Reply::fixed(530, Status(5, 7, 0), "log in first"),
            Identity::ClientAddress => {
                Reply::fixed(550, Status(5, 7, 1), "relaying denied: your address may not hand in mail here")
            }
        }
    }

    pub(super) fn stopped_reply(&self, identity: &str) -> Reply {
        let text = format!(
            "{identity} is stopped after unusual mail; nothing was taken, see the notice at the contact address"
        );
        Reply::new(550, Status(5, 7, 1), text)
    }
}

/// The sender of the envelope must be an address of the user's, or nobody.
fn check_owned(user: &UserRow, sender: &MailFrom) -> Result<(), Reply> {
    match &sender.mailbox {
        Some(from) if !belongs(from.as_str(), &user.addresses) => {
            let text = format!("{from} is not an address of the login {}", user.name);
            Err(Reply::new(553, Status(5, 7, 1), text))
        }
        _ => Ok(()),
    }
}

/// A person has locked the account.
pub(super) fn check_lock(user: &UserRow) -> Result<(), Reply> {
    match user.locked_at {
        Some(_) => {
            let text = format!("the account {} is locked: {}", user.name, user.locked_reason);
            Err(Reply::new(550, Status(5, 7, 1), text))
        }
        None => Ok(()),
    }
}

/// A listed peer speaks of a login, and not in the way in which Postfix does.
fn unclear() -> Reply {
    tracing::warn!(
        "a mail was refused: its topmost Received field speaks of an authenticated sender, and it is not clear of whom"
    );
    let text = "the topmost Received field does not say clearly who is logged in; an address with the words \"Authenticated sender: \" \
                in it must be written without them";
    Reply::fixed(550, Status(5, 7, 1), text)
}

fn no_user(error: &RecordsError) -> Reply {
    tracing::error!(%error, "the records do not answer");
    Reply::new(451, Status(4, 3, 0), "the user cannot be looked up now, try again later")
}
