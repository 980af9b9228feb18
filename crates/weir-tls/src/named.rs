//! Certificates for host names, obtained from an authority while Weir runs.
//!
//! A new certificate is used only if its key fits, it is for that name, it is valid now, and it does not expire before the one that it
//! replaces. So whatever an authority sends, a working certificate stays until there is a better one.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;

use crate::challenges::Challenges;
use crate::validity::Validity;

/// Clocks differ, so a certificate is accepted if it becomes valid at most this much later than now.
const CLOCK_SLACK: Duration = Duration::from_secs(3600);

/// Certificates by host name, and the challenges of orders that are under way.
#[derive(Debug, Default)]
pub struct NamedCertificates {
    known: RwLock<BTreeMap<String, NamedCertificate>>,
    challenges: Challenges,
}

#[derive(Debug, Default)]
struct NamedCertificate {
    pair: Option<(Arc<CertifiedKey>, Validity)>,
    problem: Option<String>,
}

/// The state of the certificate for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateState {
    /// The host name.
    pub name: String,
    /// When the certificate is valid; None if there is no certificate yet.
    pub validity: Option<Validity>,
    /// Why the last attempt to obtain one failed; None if it succeeded.
    pub problem: Option<String>,
}

impl NamedCertificates {
    /// Prepares entries for these names, still without certificates.
    pub fn for_names(names: &[String]) -> NamedCertificates {
        let known = names.iter().map(|name| (name.to_ascii_lowercase(), NamedCertificate::default())).collect();
        NamedCertificates { known: RwLock::new(known), challenges: Challenges::default() }
    }

    /// Uses a certificate from now on. Chain and key are in one PEM text.
    pub fn put(&self, name: &str, pem: &str, now: SystemTime) -> Result<Validity, PairError> {
        let (pair, validity) = usable(name, pem, now)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get_mut(&name.to_ascii_lowercase()).ok_or(PairError::NotOurs)?;
        if entry.is_older_than(&pair, validity)? {
            *entry = NamedCertificate { pair: Some((Arc::new(pair), validity)), problem: None };
        }
        Ok(validity)
    }

    /// Checks whether [`NamedCertificates::put`] would accept a certificate.
    pub fn check(&self, name: &str, pem: &str, now: SystemTime) -> Result<(), PairError> {
        let (pair, validity) = usable(name, pem, now)?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(&name.to_ascii_lowercase()).ok_or(PairError::NotOurs)?;
        entry.is_older_than(&pair, validity).map(drop)
    }

    /// Notes why there is no new certificate for this name. The present one stays in use.
    pub fn failed(&self, name: &str, problem: &str) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get_mut(&name.to_ascii_lowercase()) {
            entry.problem = Some(problem.to_owned());
        }
    }

    /// When the certificate of this name is valid; None if there is no certificate.
    pub fn validity(&self, name: &str) -> Option<Validity> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&name.to_ascii_lowercase())?.pair.as_ref().map(|(_, validity)| *validity)
    }

    /// The state of each name.
    pub fn states(&self) -> Vec<CertificateState> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let state = |(name, entry): (&String, &NamedCertificate)| CertificateState {
            name: name.clone(),
            validity: entry.pair.as_ref().map(|(_, validity)| *validity),
            problem: entry.problem.clone(),
        };
        known.iter().map(state).collect()
    }

    /// The challenges of orders that are under way.
    pub fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// The certificate for a name in lower case: its own, or that of a wildcard for it.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of = |name: &str| known.get(name)?.pair.as_ref().map(|(pair, _)| Arc::clone(pair));
        of(name).or_else(|| of(&format!("*.{}", name.split_once('.')?.1)))
    }
}

impl NamedCertificate {
    /// Whether the new certificate replaces this one. The same certificate does not; an error if the new one expires earlier.
    fn is_older_than(&self, pair: &CertifiedKey, validity: Validity) -> Result<bool, PairError> {
        match &self.pair {
            Some((before, _)) if before.cert.first() == pair.cert.first() => Ok(false),
            Some((_, before)) if before.until > validity.until => Err(PairError::Shorter),
            _ => Ok(true),
        }
    }
}

fn usable(name: &str, pem: &str, now: SystemTime) -> Result<(CertifiedKey, Validity), PairError> {
    let unreadable = |error: rustls::pki_types::pem::Error| PairError::Read(error.to_string());
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(unreadable)?;
    let first = chain.first().ok_or_else(|| PairError::Read("there is no certificate in it".to_owned()))?;
    let validity = Validity::of(first).ok_or_else(|| PairError::Read("it has no dates".to_owned()))?;
    check_name(name, first)?;
    if now >= validity.until || now + CLOCK_SLACK < validity.from {
        return Err(PairError::Dates);
    }
    let pair = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider());
    Ok((pair.map_err(PairError::Pair)?, validity))
}

fn check_name(name: &str, certificate: &CertificateDer<'_>) -> Result<(), PairError> {
    let wrong = |_| PairError::Name(name.to_owned());
    // For a wildcard, one host below it is checked in place of all.
    let host = name.strip_prefix("*.").map_or_else(|| name.to_owned(), |above| format!("weir.{above}"));
    let host = ServerName::try_from(host).map_err(|_| PairError::Name(name.to_owned()))?;
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(wrong)?;
    parsed.verify_is_valid_for_subject_name(&host).map_err(wrong)
}

/// Why a certificate is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// It is not PEM, or a part is missing.
    #[error("the certificate cannot be read: {0}")]
    Read(String),
    /// It is not for this name.
    #[error("the certificate is not for {0}")]
    Name(String),
    /// It has expired, or is not valid yet.
    #[error("the certificate does not count at this time; is the clock right?")]
    Dates,
    /// Key and certificate do not fit together.
    #[error("certificate and key cannot be used together: {0}")]
    Pair(rustls::Error),
    /// The present certificate is valid for longer.
    #[error("the certificate in use is valid for longer")]
    Shorter,
    /// No certificate for this name is configured.
    #[error("this name is not in certificates.names")]
    NotOurs,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str, days: u64) -> String {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let now = SystemTime::now();
        params.not_before = (now - Duration::from_secs(60)).into();
        params.not_after = (now + Duration::from_secs(days * 86_400)).into();
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
    }

    #[test]
    fn a_certificate_is_found_by_its_name_or_by_the_wildcard_above_it() {
        let named = NamedCertificates::for_names(&["WWW.site.example".to_owned(), "*.site.example".to_owned()]);
        assert!(named.find("www.site.example").is_none());
        named.put("www.site.example", &pem("www.site.example", 30), SystemTime::now()).unwrap();
        named.put("*.site.example", &pem("*.site.example", 30), SystemTime::now()).unwrap();
        let found = |name| named.find(name).map(|pair| pair.cert[0].to_vec());
        assert!(found("www.site.example").is_some() && found("www.site.example") != found("mail.site.example"));
        assert!(
            found("mail.site.example").is_some()
                && found("a.mail.site.example").is_none()
                && found("site.example").is_none()
        );
    }

    #[test]
    fn what_an_authority_sends_never_takes_a_working_certificate_away() {
        let named = NamedCertificates::for_names(&["www.example".to_owned()]);
        let (now, good) = (SystemTime::now(), pem("www.example", 30));
        named.put("www.example", &good, now).unwrap();
        let before = named.find("www.example").unwrap();
        let other_key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let fresh = pem("www.example", 60);
        let chain = fresh.split("-----BEGIN PRIVATE").next().unwrap().to_owned();
        let bad = [
            ("", "cannot be read"),
            ("nonsense", "cannot be read"),
            (chain.as_str(), "cannot be read"),
            (&pem("evil.example", 60), "not for www.example"),
            (&pem("www.example", 1), "longer"),
            (&format!("{chain}{other_key}"), "cannot be used together"),
        ];
        for (pem, why) in bad {
            let error = named.put("www.example", pem, now).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
            named.failed("www.example", &error);
        }
        let late = now + Duration::from_secs(90 * 86_400);
        assert!(matches!(named.put("www.example", &fresh, late), Err(PairError::Dates)));
        assert!(matches!(named.put("else.example", &pem("else.example", 9), now), Err(PairError::NotOurs)));
        assert!(Arc::ptr_eq(&before, &named.find("www.example").unwrap()));
        assert!(named.states()[0].problem.is_some());
        named.put("www.example", &fresh, now).unwrap();
        assert!(named.states()[0].problem.is_none() && !Arc::ptr_eq(&before, &named.find("www.example").unwrap()));
    }
}
