//! The metadata that a provider publishes about itself (OpenID Connect Discovery 1.0, section 3). Without I/O.

use super::https::is_address;
use serde::Deserialize;

/// The addresses of the provider's services.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Metadata {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
    #[serde(default)]
    pub(super) userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether the provider names itself when it sends the browser back (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// How the client's secret is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretIn {
    Header,
    Form,
}

impl Metadata {
    /// The address of an issuer's metadata.
    pub(super) fn address(issuer: &str) -> String {
        format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
    }

    /// Reads the metadata of this issuer. It must name exactly this issuer, and contain only https:// addresses.
    pub(super) fn read(octets: &[u8], issuer: &str) -> Result<Metadata, String> {
        let metadata: Metadata =
            serde_json::from_slice(octets).map_err(|error| format!("its description cannot be read: {error}"))?;
        if metadata.issuer != issuer {
            let said: String = metadata.issuer.chars().filter(|letter| !letter.is_control()).take(200).collect();
            return Err(format!("it calls itself {said:?}: write that as sign_in.oidc.issuer if it is the right one"));
        }
        let used = [&metadata.authorization_endpoint, &metadata.token_endpoint, &metadata.jwks_uri];
        let secure = used.into_iter().chain(&metadata.userinfo_endpoint).all(|address| is_address(address));
        if secure { Ok(metadata) } else { Err("an address in its description is not https://".to_owned()) }
    }

    /// How the secret is sent; none if the provider accepts no way that we know.
    pub(super) fn secret_in(&self) -> Option<SecretIn> {
        let Some(methods) = &self.token_endpoint_auth_methods_supported else { return Some(SecretIn::Header) };
        let has = |method: &str| methods.iter().any(|known| known == method);
        match (has("client_secret_basic"), has("client_secret_post")) {
            (true, _) => Some(SecretIn::Header),
            (false, true) => Some(SecretIn::Form),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(issuer: &str, token: &str) -> Vec<u8> {
        let base = "https://id.example";
        let value = serde_json::json!({
            "issuer": issuer, "authorization_endpoint": format!("{base}/auth"), "token_endpoint": token, "jwks_uri": format!("{base}/keys"),
        });
        value.to_string().into_bytes()
    }

    #[test]
    fn a_description_is_of_its_issuer_and_leads_over_tls_only() {
        let good = document("https://id.example", "https://id.example/token");
        let read = Metadata::read(&good, "https://id.example").unwrap();
        assert_eq!((read.secret_in(), read.userinfo_endpoint), (Some(SecretIn::Header), None));
        assert!(Metadata::read(&good, "https://id.example/").unwrap_err().contains("calls itself"));
        for token in ["http://id.example/token", "/token", "https://", "javascript:x", "https://a\r\nb/"] {
            assert!(Metadata::read(&document("https://id.example", token), "https://id.example").is_err(), "{token}");
        }
        assert!(Metadata::read(b"{}", "https://id.example").is_err() && Metadata::read(b"<html>", "x").is_err());
        assert_eq!(Metadata::address("https://id.example/r/"), "https://id.example/r/.well-known/openid-configuration");
    }
}
