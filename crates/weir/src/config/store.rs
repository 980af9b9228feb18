//! `[store]`: where everything is kept.

use super::calls::Calls;
use std::path::PathBuf;
use std::time::Duration;
use weir_settings::Section;
use weir_settings::units::{Size, Span};
use weir_store::spool::Options;

#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) folder: PathBuf,
    /// None for the database inside the folder.
    pub(crate) records: Option<String>,
    pub(crate) spool: Options,
    pub(crate) diary_bytes: u64,
}

impl Store {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Store {
        let folder = s.text(
            "folder",
            "weir-data",
            ("a path", "The data folder, if neither --data nor $WEIR_DATA names one"),
            |text| if text.is_empty() { Err("a path is expected".to_owned()) } else { Ok(()) },
        );
        let records = s.text(
            "records",
            "",
            (
                "a postgres:// URL",
                "PostgreSQL for users, throttles and held mail, when several relays share them; empty for the SQLite file in the \
                 data folder. Leave the password to PGPASSWORD or ~/.pgpass",
            ),
            postgres_url,
        );
        let diary = s.bounded(
            "diary_size",
            Size(64 << 20),
            Size(0)..=Size(1 << 40),
            "How much is remembered of what happened to each message, for `weir trace`; the oldest goes first, 0 for nothing",
        );
        let records = (!records.is_empty()).then_some(records);
        Store { folder: folder.into(), records, spool: spool(s), diary_bytes: diary.0 }
    }
}

fn spool(s: &mut Section<'_, '_>) -> Options {
    let d = Options::default();
    Options {
        segment_bytes: s
            .bounded(
                "segment",
                Size(d.segment_bytes),
                Size(1 << 20)..=Size(1 << 30),
                "Mail in transit is kept in files of this size",
            )
            .0,
        queue_bytes: s
            .bounded(
                "queue_memory",
                Size(d.queue_bytes as u64),
                Size(1 << 20)..=Size(1 << 30),
                "Memory for mail on its way to the disk",
            )
            .0 as usize,
        keep_bytes: s
            .bounded(
                "keep_memory",
                Size(d.keep_bytes as u64),
                Size(0)..=Size(1 << 30),
                "Memory for small messages just taken, so that sending them need not read the disk",
            )
            .0 as usize,
        free_floor_bytes: s
            .bounded(
                "free_space",
                Size(d.free_floor_bytes),
                Size(0)..=Size(1 << 40),
                "With less free disk space than this no mail is taken (452)",
            )
            .0,
        marks_every: s
            .bounded(
                "marks_every",
                Span(d.marks_every),
                Span(Duration::ZERO)..=Span(Duration::from_secs(10)),
                "How late progress of deliveries may reach the disk; a crash repeats what came after",
            )
            .0,
        ..d
    }
}

fn postgres_url(text: &str) -> Result<(), String> {
    let scheme = text.is_empty() || text.starts_with("postgres://") || text.starts_with("postgresql://");
    if scheme { Ok(()) } else { Err("a URL such as \"postgres://weir@db.example/weir\" is expected".to_owned()) }
}
