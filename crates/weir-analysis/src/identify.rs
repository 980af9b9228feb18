//! The plugin `identify`: the type of a file, its hashes, its entropy, and a similarity hash (TLSH).
//!
//! The whole sample is read, in pieces, however long it is. A script that does one thing by its first line and may do another when somebody
//! calls its interpreter is a reason for `unknown`.

use crate::entropy::{Entropy, rounded};
use crate::findings::Findings;
use crate::first_line;
use crate::sample::Sample;
use crate::tlsh::Tlsh;
use md5::{Digest, Md5};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use serde_json::{Value, json};
use std::io::{self, Read};

/// Everything that is computed in one pass over the bytes.
struct Sums {
    md5: Md5,
    sha1: Context,
    sha256: Context,
    tlsh: Tlsh,
    entropy: Entropy,
    size: u64,
}

/// What a file is.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    let sums = sample.open().and_then(|mut from| Sums::of(&mut from));
    let sums = sums.map_err(|error| format!("the sample cannot be read: {error}"))?;
    let (md5, sha1, sha256) =
        (hex(&sums.md5.finalize()), hex(sums.sha1.finish().as_ref()), hex(sums.sha256.finish().as_ref()));
    let (entropy, tlsh) = (rounded(sums.entropy.bits()), sums.tlsh.text());
    findings.info("type", &*sample.file_type);
    findings.info("entropy", format!("{entropy:.2}"));
    if let Some(doubt) = first_line::doubt(&sample.name, &sample.data) {
        findings.unknown("two readings", doubt);
    }
    for hash in [&sha256, &sha1, &md5] {
        findings.observable("hash", hash);
    }
    Ok(json!({
        "type": sample.file_type, "size": sums.size, "md5": md5, "sha1": sha1, "sha256": sha256, "tlsh": tlsh,
        "entropy_bits_per_byte": entropy,
    }))
}

impl Sums {
    fn of(from: &mut impl Read) -> io::Result<Sums> {
        let mut sums = Sums {
            md5: Md5::new(),
            sha1: Context::new(&SHA1_FOR_LEGACY_USE_ONLY),
            sha256: Context::new(&SHA256),
            tlsh: Tlsh::default(),
            entropy: Entropy::default(),
            size: 0,
        };
        let mut piece = vec![0; 128 << 10];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return Ok(sums),
                Ok(length) => sums.update(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.sha1.update(bytes);
        self.sha256.update(bytes);
        self.tlsh.update(bytes);
        self.entropy.update(bytes);
        self.size += bytes.len() as u64;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Memory;
    use weir_lab::job::Level;

    fn full(data: &[u8]) -> Value {
        look(&Sample::of_bytes("a", data), &mut Findings::new("identify", &mut Memory::default())).unwrap()
    }

    #[test]
    fn a_script_for_two_interpreters_is_a_doubt() {
        let doubts = |name: &str| {
            let mut shelf = Memory::default();
            let mut findings = Findings::new("identify", &mut shelf);
            let sample = Sample::of_bytes(name, b"#!/bin/sh\n''''exit 0 #'''\nprint(1)\n");
            let full = look(&sample, &mut findings).unwrap();
            let lines = findings.report(&full).unwrap().summary.taxonomies;
            lines.into_iter().filter(|line| line.level == Level::Unknown).map(|line| line.value).collect::<Vec<_>>()
        };
        assert_eq!(doubts("setup.py"), ["it is run by \"sh\", and by its name something else reads it"]);
        assert!(doubts("setup.sh").is_empty() && doubts("setup").is_empty());
    }

    #[test]
    fn what_is_said_of_a_file() {
        let abc = full(b"abc");
        assert_eq!(abc["md5"], "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(abc["sha1"], "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(abc["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((&abc["type"], &abc["size"], &abc["tlsh"]), (&"text/plain".into(), &3.into(), &Value::Null));
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(full(&all)["entropy_bits_per_byte"], 8.0);
        assert_eq!(full(&[0; 4096])["entropy_bits_per_byte"], 0.0);
        assert_eq!(full(b"")["size"], 0);
    }
}
