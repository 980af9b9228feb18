//! The section `[store]` of the configuration: where data is kept.

use std::path::PathBuf;
use std::time::Duration;
use weir_settings::settings;
use weir_store::spool::Options;

settings! {
    /// Where everything is kept
    #[section("store")]
    pub struct StoreSettings {
        /// The data folder, if neither --data nor $WEIR_DATA names one
        pub folder: PathBuf = text("weir-data", "a path")
            .valid(|text| if text.is_empty() { Err("a path is expected".to_owned()) } else { Ok(()) })
            .map(PathBuf::from),
        /// PostgreSQL for users, throttles and held mail, when several relays share them; empty for the SQLite file in the data
        /// folder. Leave the password to PGPASSWORD or ~/.pgpass
        pub records: Option<String> = text("", "a postgres:// URL").valid(postgres_url).optional(),
        /// How much room there is for what happened to each message (`weir trace`); the oldest goes first, 0 for none
        pub diary_bytes as "diary_size": u64 = size("64MiB", "0"..="1024GiB"),
        /// Without a backup for this long, `weir status` and the console say so; 0 for never
        pub backup_due: Duration = duration("8d", "0s"..="3650d"),
        /// A file whose first line is a passphrase that encrypts every backup; `weir backup --passphrase-file FILE` names another for
        /// one backup. Without a passphrase, whoever has a backup can read everything in it
        pub backup_passphrase_file: Option<PathBuf> = path().optional(),
        /// How much room there is for the index of `weir find`; the oldest goes first, 0 for none
        pub tracking_bytes as "tracking_size": u64 = size("1GiB", "0"..="1024GiB"),
        /// How long messages can be found
        pub tracking_age: Duration = duration("90d", "1h"..="3650d"),
        /// Mail in transit.
        pub spool: Options = part_by(spool),
    }
}

settings! {
    /// Mail in transit; the defaults are the spool's own.
    fn spool() -> Options {
        /// Mail in transit is kept in files of this size
        segment_bytes as "segment" = size(Options::default().segment_bytes, "1MiB"..="1GiB"),
        /// Memory for mail on its way to the disk
        queue_bytes as "queue_memory" = size(Options::default().queue_bytes as u64, "1MiB"..="1GiB"),
        /// Memory for small messages just taken, so that sending them need not read the disk
        keep_bytes as "keep_memory" = size(Options::default().keep_bytes as u64, "0"..="1GiB"),
        /// With less free disk space than this no mail is taken (452)
        free_floor_bytes as "free_space" = size(Options::default().free_floor_bytes, "0"..="1024GiB"),
        /// How long the progress of deliveries may take to reach the disk; after a crash, deliveries whose progress was not written are repeated
        marks_every = duration(Options::default().marks_every, "0s"..="10s"),
        ; ..Options::default()
    }
}

/// Checks that the text is empty or a PostgreSQL URL.
pub fn postgres_url(text: &str) -> Result<(), String> {
    let scheme = text.is_empty() || text.starts_with("postgres://") || text.starts_with("postgresql://");
    if scheme { Ok(()) } else { Err("a URL such as \"postgres://weir@db.example/weir\" is expected".to_owned()) }
}
