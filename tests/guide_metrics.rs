//! Tests that the page about metrics names every metric that a Weir with all gates exports, and no other.

use crate::console::INBOUND;
use crate::control::gate::Site;
use crate::gates::page;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Both mail servers export the same metrics, which the page lists only once.
const FAMILIES: [&str; 2] = ["weir_submission_", "weir_inbound_"];

/// These are exported only if Weir obtains certificates.
const CERTIFICATES: [&str; 2] = ["weir_certificate_expiry_timestamp_seconds", "weir_certificate_failing"];

fn is_single(name: &&str) -> bool {
    !FAMILIES.iter().any(|family| name.starts_with(family)) && !CERTIFICATES.contains(name)
}

#[test]
fn every_metric_is_on_its_page() {
    let told = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")).unwrap();
    let told: BTreeSet<&str> = told.split('`').filter(|word| word.starts_with("weir_")).filter(is_single).collect();
    let site = Site::new(INBOUND);
    let up = site.up_with(&["--demo"]);
    let (status, figures) = page(&up.listener("console"), "/metrics");
    assert_eq!(status, 200);
    let types = figures.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let exported: BTreeSet<&str> = types.filter(is_single).collect();
    assert_eq!(
        exported.difference(&told).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "docs/metrics.md does not name these"
    );
    assert_eq!(told.difference(&exported).collect::<Vec<_>>(), Vec::<&&str>::new(), "nobody exports these");
}
