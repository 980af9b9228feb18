//! What must survive: the data folder and its lock, the mail spool, the records, the samples.
//!
//! Only this crate opens the database and the spool. One process owns a data folder. Nothing is
//! acknowledged before it is durable, and what was acknowledged survives a kill, a power cut, and a full
//! disk.

pub mod diary;
pub mod folder;
pub mod past;
pub mod records;
mod sample_hash;
pub mod samples;
pub mod spool;
pub mod tracking;

/// Fills `bytes` with randomness from the operating system.
pub fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

/// The result of an operation on a file that somebody else may remove at any time; `None` if the file is gone.
pub fn unless_gone<T>(done: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// Bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal text, in upper or lower case.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_and_back() {
        assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        for bad in ["abc", "zz", "é", "+f"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
