//! Finds samples that are similar to another one, by the TLSH that the plugin `identify` makes of each.
//!
//! Two hashes have a distance: 0 for nearly identical content, below 30 for content with a few changes, above 100 for content that has
//! nothing in common. The latest samples are compared one by one.

use super::{LabError, SampleLine};
use crate::node::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// How many contents are compared at most, the latest ones.
const COMPARED_MAX: i64 = 20_000;
/// How many relatives are named.
const NAMED_MAX: usize = 50;
/// Samples further away are not relatives.
const DISTANCE_MAX: u32 = 100;

/// A sample that is similar to another.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Relative {
    /// The distance to the other sample: 0 means almost the same, 100 hardly similar.
    pub distance: u32,
    /// The sample.
    #[serde(flatten)]
    pub sample: SampleLine,
}

impl Node {
    /// The samples that are most similar to this one, the nearest first; each content once.
    pub async fn relatives(&self, which: &str) -> Result<Vec<Relative>, LabError> {
        let row = self.find(which).await?;
        let identities = self.records().lab_attempts().latest_of("identify", COMPARED_MAX).await?;
        let of = |hash: &str| identities.iter().find(|(_, known, _)| known == hash);
        let Some(own) = of(&row.given.hash).and_then(|(_, _, report)| tlsh_in(report)) else { return Ok(Vec::new()) };
        let mut seen = HashSet::from([row.given.hash.clone()]);
        let mut near: Vec<(u32, i64)> = Vec::new();
        for (sample, hash, report) in &identities {
            if !seen.insert(hash.clone()) {
                continue;
            }
            let distance = tlsh_in(report).map(|other| distance(&own, &other));
            near.extend(distance.filter(|distance| *distance <= DISTANCE_MAX).map(|distance| (distance, *sample)));
        }
        near.sort_unstable();
        let mut relatives = Vec::new();
        for (distance, sample) in near.into_iter().take(NAMED_MAX) {
            // It may have been forgotten meanwhile.
            if let Ok(row) = self.find(&sample.to_string()).await {
                relatives.push(Relative { distance, sample: super::line(row) });
            }
        }
        Ok(relatives)
    }
}

/// The hash in a report of `identify`.
fn tlsh_in(report: &str) -> Option<[u8; 35]> {
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    let text = report["full"]["tlsh"].as_str()?.strip_prefix("T1")?;
    weir_store::unhex(&text.to_ascii_lowercase())?.try_into().ok()
}

/// The distance between two hashes, as TLSH's reference implementation computes it.
fn distance(one: &[u8; 35], other: &[u8; 35]) -> u32 {
    let [checksum, length, ratios, code @ ..] = one;
    let [other_checksum, other_length, other_ratios, other_code @ ..] = other;
    let around = |a: u8, b: u8, size: u32| {
        let apart = u32::from(a).abs_diff(u32::from(b));
        apart.min(size - apart)
    };
    let length = match around(length.rotate_left(4), other_length.rotate_left(4), 256) {
        apart @ 0..=1 => apart,
        apart => apart * 12,
    };
    let ratio = |a: u8, b: u8| match around(a, b, 16) {
        apart @ 0..=1 => apart,
        apart => (apart - 1) * 12,
    };
    let ratios = ratio(ratios >> 4, other_ratios >> 4) + ratio(ratios & 15, other_ratios & 15);
    let buckets = code.iter().zip(other_code).map(|(a, b)| {
        (0..4)
            .map(|place| u32::from(a >> (2 * place) & 3).abs_diff(u32::from(b >> (2 * place) & 3)))
            .map(weight)
            .sum::<u32>()
    });
    u32::from(checksum != other_checksum) + length + ratios + buckets.sum::<u32>()
}

/// The weight of buckets whose quarters are this far apart.
fn weight(apart: u32) -> u32 {
    if apart == 3 { 6 } else { apart }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_content_is_near_and_a_hash_is_nothing_from_itself() {
        let mut one = [0x5a; 35];
        assert_eq!(distance(&one, &one), 0);
        let other = one;
        one[0] ^= 1;
        assert_eq!(distance(&one, &other), 1, "the checksum");
        one = other;
        one[1] = other[1].rotate_left(4).wrapping_add(1).rotate_left(4);
        assert_eq!(distance(&one, &other), 1, "a step of length");
        one[1] = other[1].rotate_left(4).wrapping_add(3).rotate_left(4);
        assert_eq!(distance(&one, &other), 36);
        one = other;
        one[2] = other[2].wrapping_add(0x10);
        assert_eq!(distance(&one, &other), 1, "a ratio");
        one = other;
        one[10] = 0b0000_0000;
        // 01 01 10 10 against nothing: 1 + 1 + 2 + 2.
        assert_eq!(distance(&one, &other), 6);
        assert!(distance(&[0; 35], &[0xff; 35]) > 500);
        assert_eq!(tlsh_in(r#"{"full":{"tlsh":"T100"}}"#), None);
        assert_eq!(tlsh_in(r#"{"full":{"tlsh":null}}"#), None);
        let text = format!(r#"{{"full":{{"tlsh":"T1{}"}}}}"#, "5A".repeat(35));
        assert_eq!(tlsh_in(&text), Some(other));
    }
}
