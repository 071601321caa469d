//! Options of TLS, by Redis's names.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ziptier_server::{AuthClients, Config, Tls, TlsError, TlsFiles};

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Clients {
    Yes,
    No,
    Optional,
}

/// A port for TLS, and its files.
#[derive(Debug, Args)]
pub(crate) struct TlsArguments {
    /// TCP port for clients with TLS, beside --port; 0 takes a free one [default: none]
    #[arg(
        long,
        env = "ZIPTIER_TLS_PORT",
        value_name = "PORT",
        requires_all = ["tls_cert_file", "tls_key_file"],
        help_heading = "TLS"
    )]
    tls_port: Option<u16>,

    /// File with the server's certificate in PEM, and the certificates between it and an authority behind it
    #[arg(
        long,
        env = "ZIPTIER_TLS_CERT_FILE",
        value_name = "FILE",
        requires = "tls_port",
        help_heading = "TLS"
    )]
    tls_cert_file: Option<PathBuf>,

    /// File with the certificate's private key in PEM
    #[arg(
        long,
        env = "ZIPTIER_TLS_KEY_FILE",
        value_name = "FILE",
        requires = "tls_port",
        help_heading = "TLS"
    )]
    tls_key_file: Option<PathBuf>,

    /// File with the certificates of those who sign the certificates of clients, in PEM
    #[arg(
        long,
        env = "ZIPTIER_TLS_CA_CERT_FILE",
        value_name = "FILE",
        requires = "tls_port",
        help_heading = "TLS"
    )]
    tls_ca_cert_file: Option<PathBuf>,

    /// Whether clients with TLS must show a certificate: yes, no or optional (one that is shown must be valid)
    #[arg(
        long,
        env = "ZIPTIER_TLS_AUTH_CLIENTS",
        value_enum,
        default_value_t = Clients::Yes,
        hide_possible_values = true,
        value_name = "yes|no|optional",
        help_heading = "TLS"
    )]
    tls_auth_clients: Clients,

    /// Listen with TLS alone: --port counts for nothing
    #[arg(long, env = "ZIPTIER_TLS_ONLY", requires_if("true", "tls_port"), help_heading = "TLS")]
    tls_only: bool,
}

impl TlsArguments {
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), TlsError> {
        let (Some(port), Some(cert), Some(key)) = (self.tls_port, &self.tls_cert_file, &self.tls_key_file)
        else {
            return Ok(());
        };
        let files = TlsFiles { cert: cert.clone(), key: key.clone(), ca_cert: self.tls_ca_cert_file.clone() };
        let clients = match self.tls_auth_clients {
            Clients::Yes => AuthClients::Yes,
            Clients::No => AuthClients::No,
            Clients::Optional => AuthClients::Optional,
        };
        config.tls = Some(Tls::load(port, &files, clients)?);
        config.plain = !self.tls_only;
        Ok(())
    }
}
