//! The pages with which the gate itself answers, for example when it refuses a request.
//!
//! A small page of our own for each status, or `STATUS.html` of a configured folder, read at start. Nothing of the request
//! is repeated in it.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use bytes::Bytes;
use http::StatusCode;

/// The pages by status.
#[derive(Debug, Default)]
pub struct Pages {
    own: HashMap<u16, Bytes>,
}

/// The largest page.
const PAGE_BYTES_MAX: u64 = 256 << 10;

impl Pages {
    /// Reads what is in a folder; statuses without a file get the built-in page.
    pub fn read(folder: &Path) -> io::Result<Pages> {
        let mut own = HashMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let status = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            let html = path.extension().is_some_and(|extension| extension == "html");
            if let (Some(status @ 400..=599), true) = (status, html) {
                if path.metadata()?.len() > PAGE_BYTES_MAX {
                    let what = format!("{} is larger than 256 KiB", path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                own.insert(status, std::fs::read(&path)?.into());
            }
        }
        Ok(Pages { own })
    }

    pub fn page(&self, status: StatusCode) -> Bytes {
        match self.own.get(&status.as_u16()) {
            Some(page) => page.clone(),
            None => built_in(status),
        }
    }
}

fn built_in(status: StatusCode) -> Bytes {
    let (code, reason) = (status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    let say = match code {
        400 => "The request is not valid HTTP.",
        404 => "Nothing is served under this address.",
        408 => "The request took too long to arrive.",
        413 => "The request is larger than what is accepted here.",
        429 => "You have too many connections open here. Close one and try again.",
        502 => "The server behind this gate could not be reached or did not answer properly.",
        503 => "Too many requests are waiting. Please try again in a moment.",
        504 => "The server behind this gate took too long to answer.",
        _ => "",
    };
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{code} {reason}</title>\n<style>body{{font:1.1rem/1.5 \
         system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;color:#222}}h1{{font-size:1.6rem}}\
         @media(prefers-color-scheme:dark){{body{{background:#161616;color:#ddd}}}}</style>\n<h1>{code} \
         {reason}</h1>\n<p>{say}</p>\n</html>\n"
    );
    page.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_replaces_some_pages() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("503.html"), "full").unwrap();
        std::fs::write(folder.path().join("999.html"), "no").unwrap();
        std::fs::write(folder.path().join("502.txt"), "no").unwrap();
        let pages = Pages::read(folder.path()).unwrap();
        assert_eq!(pages.page(StatusCode::SERVICE_UNAVAILABLE), "full");
        let bad = pages.page(StatusCode::BAD_GATEWAY);
        assert!(std::str::from_utf8(&bad).unwrap().contains("<h1>502 Bad Gateway</h1>"));
    }
}
