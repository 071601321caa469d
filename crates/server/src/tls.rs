//! TLS: certificates and keys from files, and the side of a connection that encrypts. rustls does both, with the
//! cryptography of ring.
//!
//! Not for names of servers: every client gets the same certificate.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// Bytes that wait to be encrypted, and encrypted bytes that wait for the socket, at most.
const BUFFER_BYTES: usize = 64 << 10;
/// Memory of a TLS connection beside such bytes: its state, its keys and its buffer for records.
const STATE_BYTES: usize = 24 << 10;

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthClients {
    /// They are not asked for one.
    No,
    /// They may show one, which must then be valid.
    Optional,
    /// They must show a valid one.
    Yes,
}

/// The files of TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificates of the server in PEM, its own first.
    pub cert: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
    /// Certificates in PEM of those who sign certificates of clients.
    pub ca_cert: Option<PathBuf>,
}

/// A port for TLS, and what its clients see.
#[derive(Clone)]
pub struct Tls {
    pub(crate) port: u16,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("port", &self.port).finish_non_exhaustive()
    }
}

/// Why TLS cannot be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or has nothing of the kind in it.
    File {
        /// What it should hold.
        content: &'static str,
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Certificates of clients are asked for, and nobody signs them.
    NoAuthority,
    /// Certificate and key are refused, for instance because they do not belong together.
    Refused {
        /// rustls's words.
        reason: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { content, path, reason } => {
                write!(f, "could not read {content} from {}: {reason}", path.display())
            }
            Self::NoAuthority => f.write_str(
                "clients must show a certificate, and nobody signs them; name --tls-ca-cert-file, or say \
                 --tls-auth-clients no",
            ),
            Self::Refused { reason } => {
                write!(f, "could not use --tls-cert-file with --tls-key-file: {reason}")
            }
        }
    }
}

impl std::error::Error for TlsError {}

fn certificates(content: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |reason: String| TlsError::File { content, path: path.to_owned(), reason };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(failed("it has no certificate in PEM".into())),
        Ok(found) => Ok(found),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn refused(error: impl fmt::Display) -> TlsError {
    TlsError::Refused { reason: error.to_string() }
}

impl Tls {
    /// Reads certificates and key. 0 takes a free port.
    ///
    /// # Errors
    ///
    /// If a file is missing or holds something else, or if the files do not go together.
    pub fn load(port: u16, files: &TlsFiles, clients: AuthClients) -> Result<Self, TlsError> {
        let chain = certificates("the certificate", &files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::File {
            content: "the private key",
            path: files.key.clone(),
            reason: error.to_string(),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(refused)?;
        let builder = if clients == AuthClients::No {
            builder.with_no_client_auth()
        } else {
            let path = files.ca_cert.as_ref().ok_or(TlsError::NoAuthority)?;
            let mut roots = RootCertStore::empty();
            for certificate in certificates("certificates of authorities", path)? {
                roots.add(certificate).map_err(refused)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients {
                AuthClients::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(refused)?)
        };
        let config = builder.with_single_cert(chain, key).map_err(refused)?;
        Ok(Self { port, config: Arc::new(config) })
    }

    /// The server's side of a new connection.
    pub(crate) fn accept(&self) -> Option<Session> {
        let mut connection = ServerConnection::new(Arc::clone(&self.config)).ok()?;
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Some(Session { connection, handshake_bytes: 0 })
    }
}

/// The state of a connection that encrypts.
pub(crate) struct Session {
    connection: ServerConnection,
    /// Bytes of a handshake so far, which rustls may keep until its messages are whole; 0 after it.
    handshake_bytes: usize,
}

/// What came of one step.
pub(crate) enum Step {
    /// So many bytes of plain text, or none yet.
    Bytes(usize),
    /// The socket has nothing to read, or takes nothing, for now.
    WouldBlock,
    /// The stream is at its end, or broken.
    Gone,
}

impl Session {
    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn is_pending(&self) -> bool {
        self.connection.wants_write()
    }

    /// Bytes of memory held, about.
    pub(crate) fn held_bytes(&self) -> usize {
        STATE_BYTES + self.handshake_bytes + if self.is_pending() { BUFFER_BYTES } else { 0 }
    }

    /// Takes some plain text for encryption, and returns how much.
    pub(crate) fn encrypt(&mut self, bytes: &[u8]) -> usize {
        self.connection.writer().write(bytes).unwrap_or(0)
    }

    /// Writes encrypted bytes, and adds the number to `sent`.
    pub(crate) fn flush(&mut self, stream: &mut TcpStream, sent: &mut u64) -> Step {
        while self.connection.wants_write() {
            match self.connection.write_tls(stream) {
                Ok(0) => return Step::Gone,
                Ok(count) => *sent += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::WouldBlock,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Step::Gone,
            }
        }
        Step::Bytes(0)
    }

    /// Reads once: plain text that is there already, or one portion of the socket, whose number of bytes is added to
    /// `received`. The answers of a handshake wait then for [`Session::flush`], and so does the alert about bytes that
    /// are no TLS.
    pub(crate) fn read(&mut self, stream: &mut TcpStream, buffer: &mut [u8], received: &mut u64) -> Step {
        match self.plain(buffer) {
            Step::WouldBlock => {}
            step => return step,
        }
        match self.connection.read_tls(stream) {
            Ok(0) => return Step::Gone,
            Ok(count) => {
                *received += count as u64;
                self.handshake_bytes += count;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Step::Bytes(0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::WouldBlock,
            Err(_) => return Step::Gone,
        }
        if self.connection.process_new_packets().is_err() {
            return Step::Gone;
        }
        if !self.connection.is_handshaking() {
            self.handshake_bytes = 0;
        }
        match self.plain(buffer) {
            Step::WouldBlock => Step::Bytes(0),
            step => step,
        }
    }

    /// Plain text that is there already.
    fn plain(&mut self, buffer: &mut [u8]) -> Step {
        match self.connection.reader().read(buffer) {
            Ok(0) => Step::Gone,
            Ok(count) => Step::Bytes(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Step::WouldBlock,
            Err(_) => Step::Gone,
        }
    }

    /// Says that nothing more will come.
    pub(crate) fn end(&mut self, stream: &mut TcpStream) {
        self.connection.send_close_notify();
        let _ = self.flush(stream, &mut 0);
    }
}
