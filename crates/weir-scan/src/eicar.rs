//! The test file that every scanner must find. It is put together only when it is needed, so that no scanner takes this program for it.

/// Its two halves, of which no scanner says anything.
pub const HALVES: [&str; 2] = [r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR", "-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"];

/// The whole of it.
pub fn eicar() -> String {
    HALVES.concat()
}
