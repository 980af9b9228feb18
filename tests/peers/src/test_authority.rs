//! A certificate authority for tests, made with openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The authority and the certificates that it has signed, in a folder of its own.
#[derive(Debug)]
pub struct TestAuthority {
    folder: tempfile::TempDir,
}

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

impl TestAuthority {
    /// A new one.
    pub fn new() -> TestAuthority {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Servers that run as other users must be able to read the certificates.
        assert!(Command::new("chmod").arg("755").arg(folder.path()).status().is_ok_and(|status| status.success()));
        let authority = TestAuthority { folder };
        authority.openssl(&format!(
            "req -x509 {KEY} -keyout ca.key -out ca.pem -subj /CN=Test -days 30 -addext keyUsage=critical,keyCertSign"
        ));
        authority
    }

    /// Its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Signs a certificate for these names. Returns the files with the certificate (followed by the authority's) and the key, under this
    /// file name.
    pub fn sign(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let names = names.join(",");
        self.openssl(&format!(
            "req {KEY} -keyout {file}.key -out {file}.csr -subj /CN={file} -addext subjectAltName={names}"
        ));
        self.openssl(&format!(
            "x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy -days 30 -out {file}.pem"
        ));
        let path = |name: &str| self.folder.path().join(name);
        let read = |name: &str| std::fs::read_to_string(path(name)).expect("a certificate");
        std::fs::write(path(&format!("{file}.chain")), read(&format!("{file}.pem")) + &read("ca.pem"))
            .expect("a chain");
        (path(&format!("{file}.chain")), path(&format!("{file}.key")))
    }

    /// The SHA-256 of the public key in a certificate, as used in TLSA records.
    pub fn key_digest(&self, file: &str) -> String {
        self.openssl(&format!("x509 -in {file}.pem -noout -pubkey -out {file}.pub"));
        self.openssl(&format!("pkey -pubin -in {file}.pub -outform DER -out {file}.der"));
        digest(&self.folder.path().join(format!("{file}.der")))
    }

    /// The SHA-256 of the authority's whole certificate.
    pub fn digest(&self) -> String {
        self.openssl("x509 -in ca.pem -outform DER -out ca.der");
        digest(&self.folder.path().join("ca.der"))
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(self.folder.path()).output();
        let output = output.expect("openssl is not installed: run `make setup`");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Default for TestAuthority {
    fn default() -> TestAuthority {
        TestAuthority::new()
    }
}

fn digest(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("sha256sum runs");
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned()
}
