//! Whatever stands in the spool's folder: opening it never panics, and never allocates more at once than the files are long.
//!
//! The allocator of this test counts, which needs `unsafe`; it hands everything on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use weir_store::spool::{Options, Spool};

/// The scan's window, the tables of an empty spool, and what a thread needs.
const ALLOWANCE: usize = 600 * 1024;

struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MARKER: [u8; 8] = *b"\x8fmarker\x01";

/// A file of the spool put together from true and false parts.
#[derive(Clone, Debug)]
enum Part {
    Noise(Vec<u8>),
    Zeros(usize),
    FileHeader(u8, u32),
    /// Kind, claimed length, payload; whether the checksums are right.
    Record(u8, u32, Vec<u8>, bool, bool),
}

fn bytes_of(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            Part::Noise(noise) => bytes.extend_from_slice(noise),
            Part::Zeros(count) => bytes.resize(bytes.len() + count, 0),
            Part::FileHeader(kind, number) => bytes.extend_from_slice(&file_header(*kind, *number)),
            Part::Record(kind, length, payload, head_right, payload_right) => {
                let mut head = [0; 40];
                head[..8].copy_from_slice(&MARKER);
                head[8..12].copy_from_slice(&length.to_le_bytes());
                head[24] = *kind;
                head[28..32].copy_from_slice(&length.to_le_bytes());
                let crc = crc32fast::hash(payload) ^ u32::from(!payload_right);
                head[32..36].copy_from_slice(&crc.to_le_bytes());
                let crc = crc32fast::hash(&head[..36]) ^ u32::from(!head_right);
                head[36..].copy_from_slice(&crc.to_le_bytes());
                bytes.extend_from_slice(&head);
                bytes.extend_from_slice(payload);
            }
        }
    }
    bytes
}

fn file_header(kind: u8, number: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(b"WEIRSPL1");
    bytes[8] = kind;
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..24].copy_from_slice(&MARKER);
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn record() -> impl Strategy<Value = Part> {
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        // A commit: its first sixteen bytes are size, checksum and the number of chunks.
        (any::<u64>(), any::<u32>(), prop::collection::vec(any::<u32>(), 0..9)).prop_map(|(size, count, places)| {
            let mut bytes = size.to_le_bytes().to_vec();
            bytes.extend_from_slice(&[0; 4]);
            let count = if size % 2 == 0 { places.len() as u32 / 3 } else { count };
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend(places.iter().flat_map(|place| place.to_le_bytes()));
            bytes
        }),
    ];
    (0..8u8, prop::option::of(any::<u32>()), payload, prop::bool::weighted(0.9), prop::bool::weighted(0.8)).prop_map(
        |(kind, length, payload, head, right)| {
            let length = length.filter(|length| length % 4 == 0).unwrap_or(payload.len() as u32);
            Part::Record(kind, length, payload, head, right)
        },
    )
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Part::Noise),
        1 => (0..5000usize).prop_map(Part::Zeros),
        8 => record(),
    ];
    let opening = prop::option::weighted(0.8, (0..3u8, 0..4u32));
    (opening, prop::collection::vec(part, 0..30)).prop_map(|(opening, mut parts)| {
        parts.splice(0..0, opening.map(|(kind, number)| Part::FileHeader(kind, number)));
        bytes_of(&parts)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)))]

    #[test]
    fn garbage_is_survived_within_the_memory_of_its_length(files in prop::collection::vec((0..2usize, 0..4u32, file()), 1..5)) {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let mut longest = 0;
        for (part, number, bytes) in &files {
            longest = longest.max(bytes.len());
            let ending = ["seg", "marks"][*part];
            fs::write(folder.path().join(format!("{number:08}.{ending}")), bytes).unwrap();
        }
        let options = Options { free_floor_bytes: 0, ..Options::default() };
        LARGEST.store(0, Ordering::Relaxed);
        let (spool, found) = Spool::open(folder.path(), options.clone()).unwrap();
        let largest = LARGEST.load(Ordering::Relaxed);
        prop_assert!(largest <= longest + ALLOWANCE, "{largest} bytes at once for files of {longest}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for found in &found {
                // Whether it can be read is for the checksums to say; only a panic would be wrong.
                let _ = spool.body(found.id).unwrap().read_all().await;
                spool.mark(found.id, &b"seen"[..]).unwrap();
            }
            spool.compact().await.unwrap();
        });
        drop(spool);
        let (_, again) = Spool::open(folder.path(), options).unwrap();
        prop_assert_eq!(found.len(), again.len());
        prop_assert!(again.iter().all(|found| found.marks.iter().last() == Some(b"seen")));
    }
}
