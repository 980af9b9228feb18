//! DKIM (RFC 6376, RFC 8301): one signature at a time. mail-auth hashes and verifies; which key may verify which signature is decided here,
//! because mail-auth accepts keys that are not for mail (`s=chat`), keys that are not for the signature's hash (`h=sha1`), and signatures
//! that do not cover From.

use super::names::{DnsResolver, NoRecord};
use super::tags::{names_one_of, tags, value};
use hickory_resolver::proto::op::ResponseCode;
use mail_auth::common::crypto::Algorithm;
use mail_auth::common::parse::TxtRecordParser;
use mail_auth::common::verify::{DomainKey, VerifySignature};
use mail_auth::dkim::{DkimError, Signature};
use mail_auth::{
    AuthenticatedMessage, DkimOutput, DkimResult, DnsError, Error, MessageAuthenticator, Parameters, ResolverCache, Txt,
};
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

/// The longest domain or selector that can be one.
const NAME_MAX: usize = 255;
/// The most that may be compared for one signature: names that it signs, times fields of the header.
const COMPARISONS_MAX: usize = 1 << 18;

/// Verifies the one signature of a message.
pub(super) async fn verify<'a>(
    authenticator: &MessageAuthenticator,
    names: &DnsResolver,
    single: &'a AuthenticatedMessage<'a>,
) -> Option<DkimOutput<'a>> {
    let header = single.dkim_headers.first()?;
    let signature = &header.header;
    if let Some(unfit) = unfit(signature, header.value, single.headers.len()) {
        return Some(unfit.with_signature(signature));
    }
    let key = match key(names, signature).await {
        Ok(key) => key,
        Err(error) => return Some(DkimOutput::dns_error(error).with_signature(signature)),
    };
    let known = KnownKey(Txt::DomainKey(Arc::new(key)));
    let found = authenticator.verify_dkim(Parameters::new(single).with_txt_cache(&known)).await;
    Some(judged(found.first().map(DkimOutput::result)).with_signature(signature))
}

/// An altered body and an expired signature are failures, not neutral results.
fn judged<'a>(result: Option<&DkimResult>) -> DkimOutput<'a> {
    match result {
        Some(DkimResult::Pass) => DkimOutput::pass(),
        Some(DkimResult::Neutral(
            error @ Error::Dkim(DkimError::FailedBodyHashMatch | DkimError::SignatureExpired),
        )) => DkimOutput::fail(error.clone()),
        Some(DkimResult::Neutral(error)) => DkimOutput::neutral(error.clone()),
        Some(DkimResult::Fail(error)) => DkimOutput::fail(error.clone()),
        Some(DkimResult::TempError(error)) => DkimOutput::temp_err(error.clone()),
        Some(DkimResult::PermError(error)) => DkimOutput::perm_err(error.clone()),
        Some(DkimResult::None) | None => DkimOutput::perm_err(Error::ParseError),
    }
}

/// Why a signature is not even tried.
fn unfit<'a>(signature: &Signature, text: &[u8], fields: usize) -> Option<DkimOutput<'a>> {
    let long = [&signature.d, &signature.s, &signature.i].iter().any(|name| name.len() > NAME_MAX);
    if long || signature.h.len().saturating_mul(fields) > COMPARISONS_MAX {
        return Some(DkimOutput::perm_err(Error::ParseError));
    }
    let Some(tags) = std::str::from_utf8(text).ok().and_then(tags) else {
        return Some(DkimOutput::neutral(Error::ParseError));
    };
    if value(&tags, "v") != Some("1") || value(&tags, "a").is_none() {
        return Some(DkimOutput::neutral(Error::MissingParameters));
    }
    // RFC 8301: such a signature proves nothing.
    if signature.a == Algorithm::RsaSha1 {
        return Some(DkimOutput::perm_err(Error::Dkim(DkimError::UnsupportedAlgorithm)));
    }
    let signs_from = signature.h.iter().any(|name| name.trim().eq_ignore_ascii_case("from"));
    let by_dns = value(&tags, "q").is_none_or(|ways| names_one_of(ways, &["dns/txt", "dns"]));
    if !signs_from || !by_dns {
        return Some(DkimOutput::perm_err(Error::MissingParameters));
    }
    (!speaks_for(signature)).then(|| DkimOutput::perm_err(Error::Dkim(DkimError::FailedAuidMatch)))
}

/// The identity of a signature is of its domain, or of one below it.
fn speaks_for(signature: &Signature) -> bool {
    let Some((_, identity)) = signature.i.rsplit_once('@') else { return signature.i.is_empty() };
    let (identity, domain) = (identity.to_ascii_lowercase(), signature.d.to_ascii_lowercase());
    identity.strip_suffix(&domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The key that a signature names, if it may be used for mail and for its hash.
async fn key(names: &DnsResolver, signature: &Signature) -> Result<DomainKey, Error> {
    let found = match names.txt(&signature.domain_key()).await {
        Ok(found) => found,
        Err(NoRecord::Unknown) => return Err(super::unanswered()),
        Err(NoRecord::NoName | NoRecord::Empty) => {
            return Err(Error::Dns(DnsError::RecordNotFound(ResponseCode::NXDomain)));
        }
    };
    let readable = || found.iter().filter_map(|text| Some((text, tags(std::str::from_utf8(text).ok()?)?)));
    let mut keys = readable().filter(|(_, tags)| value(tags, "p").is_some());
    match (keys.next(), keys.next()) {
        (Some((text, tags)), None) => {
            check_use(&tags)?;
            DomainKey::parse(text)
        }
        // With several records nobody could say which one counts.
        _ => Err(Error::Dns(DnsError::InvalidRecordType)),
    }
}

fn check_use(tags: &[(&str, &str)]) -> Result<(), Error> {
    let version_first =
        value(tags, "v").is_none_or(|version| tags.first() == Some(&("v", version)) && version == "DKIM1");
    if !version_first {
        return Err(Error::Dns(DnsError::InvalidRecordType));
    }
    let hash = value(tags, "h").is_none_or(|hashes| names_one_of(hashes, &["sha256"]));
    let service = value(tags, "s").is_none_or(|services| names_one_of(services, &["*", "email"]));
    if hash && service { Ok(()) } else { Err(Error::Dkim(DkimError::UnsupportedKeyType)) }
}

/// Hands mail-auth the key that was found. It asks for nothing else: reports and third parties were taken out of the signature.
struct KnownKey(Txt);

impl ResolverCache<Box<str>, Txt> for KnownKey {
    fn get<Q>(&self, _: &Q) -> Option<Txt>
    where
        Box<str>: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        Some(self.0.clone())
    }

    fn remove<Q>(&self, _: &Q) -> Option<Txt>
    where
        Box<str>: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        None
    }

    fn insert(&self, _: Box<str>, _: Txt, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_used_for_what_it_is_meant_for() {
        let usable = |text: &str| check_use(&tags(text).unwrap()).is_ok();
        for good in ["p=x", "v=DKIM1; p=x", "v=DKIM1; h=sha1:sha256; s=email; p=x", "s=chat:*; p=x"] {
            assert!(usable(good), "{good}");
        }
        for bad in ["v=DKIM2; p=x", "p=x; v=DKIM1", "v=DKIM1; s=chat; p=x", "h=sha1; p=x", "h=; p=x", "s=; p=x"] {
            assert!(!usable(bad), "{bad}");
        }
    }

    #[test]
    fn an_identity_is_of_its_domain() {
        let speaks = |i: &str| speaks_for(&Signature { d: "b.example".into(), i: i.into(), ..Signature::default() });
        assert!(speaks("") && speaks("@b.example") && speaks("x@A.B.example"));
        assert!(!speaks("@ab.example") && !speaks("x@other.example") && !speaks("nonsense"));
    }
}
