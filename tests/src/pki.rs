//! Certificates, made for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Somebody who vouches for others.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// A new one, with its files in the folder.
    pub fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).expect("written");
        Self { dir: dir.to_owned(), name: name.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// Its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join(format!("{}.pem", self.name))
    }

    /// Vouches for somebody with this name.
    pub fn vouch(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let path = |end: &str| self.dir.join(format!("{}-{name}.{end}", self.name));
        let pair = Pair { certificate: path("pem"), key: path("key") };
        fs::write(&pair.certificate, certificate.pem()).expect("written");
        fs::write(&pair.key, key.serialize_pem()).expect("written");
        pair
    }
}
