//! The section `[sign_in.oidc]`: an identity provider whose people may sign in at the console.

use super::https;
use crate::role_rule::RoleRule;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::{Section, settings};

settings! {
    /// People may log in to the console through an OpenID Connect provider. Accounts with a password in Weir stay as they are
    #[section("sign_in.oidc")]
    #[check(ProviderSettings::check)]
    pub struct ProviderSettings {
        /// The provider, exactly as it calls itself: "https://id.example.org/realms/staff"; empty is off
        pub issuer: String = text("", "an https:// address").valid(issuer),
        /// Certificates of authorities to trust for it, as PEM; empty for those that the machine trusts
        pub ca_file: Option<PathBuf> = path().optional(),
        /// What the provider calls this console
        pub client_id: String = text("", "a name"),
        /// The file whose first line is the secret that belongs to it; empty if the provider gave none
        pub client_secret_file: Option<PathBuf> = path().optional(),
        /// What is asked for besides "openid"
        pub scopes: Vec<String> = list(["profile".to_owned()], 16, "scopes"),
        /// The claim that is somebody's name here. It must be one that people cannot choose for themselves
        pub name_claim: String = text("preferred_username", "a claim"),
        /// The claim that lists somebody's groups
        pub groups_claim: String = text("groups", "a claim"),
        /// Who may do what, by group: "admin weir-admins" or "operator helpdesk"; the highest counts
        pub roles: Vec<RoleRule> = list([], 64, "roles with their groups"),
        /// Whether people in none of these groups may sign in, too, and see what is their own
        pub users: bool = flag(false),
        /// How long the provider may take to answer
        pub timeout: Duration = duration("10s", "100ms"..="1m"),
        /// How long somebody stays signed in before the provider is asked again
        pub session: Duration = duration("1h", "1m"..="12h"),
    }
}

fn issuer(text: &str) -> Result<(), String> {
    let good = text.is_empty() || (https::is_address(text) && !text.contains(['?', '#']));
    if good { Ok(()) } else { Err(format!("{text:?} is not a provider: write https://host, or https://host/path")) }
}

impl ProviderSettings {
    /// Whether a provider is configured.
    pub fn is_on(&self) -> bool {
        !self.issuer.is_empty()
    }

    fn check(&self, section: &mut Section<'_, '_>) {
        if !self.is_on() {
            return;
        }
        if self.client_id.is_empty() {
            let hint = "register the console at the provider, and write the client id that it gives";
            section.blame("client_id", "the provider would not know who asks".into(), hint);
        }
        if self.roles.is_empty() && !self.users {
            let hint =
                "name a group: roles = [\"admin weir-admins\"]; or let everybody of the provider in: users = true";
            section.blame("roles", "nobody could sign in".into(), hint);
        }
        if self.name_claim.is_empty() {
            section.blame("name_claim", "nobody would have a name".into(), "write preferred_username, email or sub");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_are_read_or_refused() {
        for text in ["", "https://id.example", "https://id.example:8443/realms/x", "https://[::1]/"] {
            assert!(issuer(text).is_ok(), "{text}");
        }
        for text in
            ["http://id.example", "id.example", "https://", "https://a?b", "https://a#b", "https://u@a", "https://a b"]
        {
            assert!(issuer(text).is_err(), "{text}");
        }
    }
}
