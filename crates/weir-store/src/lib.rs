//! What must survive: the data folder and its lock, the mail spool, the records, the samples.
//!
//! Only this crate opens the database and the spool. One process owns a data folder. Nothing is
//! acknowledged before it is durable, and what was acknowledged survives a kill, a power cut, and a full
//! disk.

pub mod folder;
pub mod records;
mod sample_hash;
pub mod samples;
pub mod spool;

/// Fills `bytes` with randomness from the operating system.
pub fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

/// Bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
