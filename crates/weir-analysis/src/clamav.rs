//! The plugin `clamav`: what ClamAV's clamd says.
//!
//! Settings: `addresses`, where clamd listens (`unix:/run/clamav/clamd.ctl`), and `size`, the largest file that is sent to it. First clamd is tested:
//! it must find the EICAR test file. A signature that matches is `malicious`. A file that clamd calls clean is `safe`, unless it is an archive and
//! this clamd does not report what it could not open. If clamd does not answer, the plugin fails and is tried again.

use crate::findings::Findings;
use crate::sample::Sample;
use serde_json::{Value, json};
use weir_scan::address::Address;
use weir_scan::clamd::{Clamd, Settings};
use weir_scan::content::Content;
use weir_scan::verdict::Outcome;
use weir_scan::walk::kind::Kind;

/// What clamd says.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    let settings = settings(&sample.config)?;
    if !sample.is_whole() {
        findings.info("not-scanned", "it is larger than what goes to clamd");
        return Ok(json!({ "outcome": "not scanned" }));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let (outcome, silent, signatures) = runtime.block_on(scan(settings, &sample.data))?;
    let opens = Kind::of(&sample.data).is_archive() || Kind::of(&sample.data) == Kind::Ole;
    let outcome = match outcome {
        Outcome::Clean if silent && opens => {
            findings.info("not-all", "this clamd does not tell what it has not opened");
            "clean"
        }
        Outcome::Clean => {
            findings.safe("clean", signatures.as_str());
            "clean"
        }
        Outcome::Infected { name } => {
            findings.malicious("signature", name);
            "infected"
        }
        Outcome::NotScanned { limit } => {
            findings.info("not-scanned", limit);
            "not scanned"
        }
        Outcome::Forbidden { reason } => {
            findings.info("locked", reason);
            "locked"
        }
        Outcome::Spam { .. } => "clean",
        Outcome::Failed { problem } => return Err(problem),
    };
    Ok(json!({ "outcome": outcome, "signatures": signatures }))
}

fn settings(config: &Value) -> Result<Settings, String> {
    let listed = config["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let addresses: Result<Vec<Address>, String> =
        listed.iter().map(|text| text.as_str().unwrap_or_default().parse()).collect();
    let mut settings = Settings { addresses: addresses?, ..Settings::default() };
    if settings.addresses.is_empty() {
        return Err("no clamd is configured: name its socket in scan.clamav.addresses".into());
    }
    settings.size = config["size"].as_u64().unwrap_or(settings.size);
    Ok(settings)
}

/// What clamd says, whether it keeps silent about what it could not open, and the version of its signatures.
async fn scan(settings: Settings, data: &[u8]) -> Result<(Outcome, bool, String), String> {
    let content = Content::of(data).map_err(|error| format!("the sample cannot be handed over: {error}"))?;
    let clamd = Clamd::start(settings);
    let outcome = clamd.scan(&content).await;
    let silent = clamd.conditions().iter().any(|condition| condition.silent);
    Ok((outcome.plain(), silent, clamd.version().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Memory;
    use crate::fixtures;
    use weir_lab::job::Level;

    fn said(data: &[u8], address: &str) -> Result<(Level, String), String> {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("clamav", &mut shelf);
        let config = json!({ "addresses": [address] });
        let full = look(&Sample { config, ..Sample::of_bytes("a", data) }, &mut findings)?;
        let lines = findings.report(&full).unwrap().summary.taxonomies;
        Ok((lines[0].level, lines[0].predicate.clone()))
    }

    #[test]
    fn a_real_clamd_is_asked() {
        let clamd = weir_peers::Clamd::start();
        let address = format!("unix:{}", clamd.socket().display());
        assert_eq!(said(&fixtures::eicar(), &address), Ok((Level::Malicious, "signature".into())));
        assert_eq!(said(b"hello", &address), Ok((Level::Safe, "clean".into())));
        let zip = fixtures::zip(&[("a.com", &fixtures::eicar())]);
        assert_eq!(said(&zip, &address).map(|(level, _)| level), Ok(Level::Malicious));
        assert_eq!(said(&fixtures::zip(&[("a", b"b")]), &address).map(|(level, _)| level), Ok(Level::Safe));
        drop(clamd);
        assert!(said(b"hello", &address).is_err());
    }

    #[test]
    fn settings_that_are_none_are_told() {
        assert!(said(b"x", "moon").unwrap_err().contains("is not an address"));
    }
}
