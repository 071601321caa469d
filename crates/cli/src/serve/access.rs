//! Options of access: the clients that may use the server, and the time for which a client may be silent.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::{fmt, fs};

use clap::Args;
use ziptier_server::{Config, OutputLimits, Password};

/// A password and limits on silence.
#[derive(Debug, Args)]
pub(crate) struct AccessArguments {
    /// Password that clients must send first (AUTH). Other users of this machine can see arguments; the environment and
    /// --requirepass-file keep the password secret [default: no password]
    #[arg(
        long,
        env = "ZIPTIER_REQUIREPASS",
        hide_env_values = true,
        value_name = "PASSWORD",
        help_heading = "Clients"
    )]
    requirepass: Option<Secret>,

    /// File whose first line is the password that clients must send
    #[arg(long, env = "ZIPTIER_REQUIREPASS_FILE", value_name = "FILE", help_heading = "Clients")]
    requirepass_file: Option<PathBuf>,

    /// Seconds after which an idle client is disconnected; 0 for never
    #[arg(
        long,
        env = "ZIPTIER_TIMEOUT",
        default_value_t = 0,
        value_name = "SECONDS",
        help_heading = "Clients"
    )]
    timeout: u32,

    /// Seconds of silence after which the system probes the connection of a client; 0 for never
    #[arg(
        long,
        env = "ZIPTIER_TCP_KEEPALIVE",
        default_value_t = 300,
        value_name = "SECONDS",
        help_heading = "Clients"
    )]
    tcp_keepalive: u32,

    /// Bounds on the unsent replies of a client, as in Redis: 'normal 256mb 64mb 60' disconnects a client at 256 MiB at
    /// once, and at 64 MiB after 60 seconds [default: never]
    #[arg(long, env = "ZIPTIER_CLIENT_OUTPUT_BUFFER_LIMIT", value_name = "LIMITS", help_heading = "Clients")]
    client_output_buffer_limit: Option<OutputLimits>,
}

/// Text that no message shows. Any text will do, because clap's errors quote what they refuse.
#[derive(Clone)]
struct Secret(String);

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl AccessArguments {
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), String> {
        config.timeout_s = self.timeout.into();
        config.keepalive_s = self.tcp_keepalive.into();
        config.output_limits = self.client_output_buffer_limit.unwrap_or_default();
        config.password = self.password()?;
        Ok(())
    }

    /// An empty `--requirepass` means none, as in Redis. An empty file is a mistake.
    fn password(&self) -> Result<Option<Password>, String> {
        let given = self.requirepass.as_ref().filter(|Secret(text)| !text.is_empty());
        if let Some(path) = &self.requirepass_file {
            if given.is_some() {
                let words =
                    "--requirepass-file cannot be used with --requirepass or its variable; leave one out";
                return Err(words.to_owned());
            }
            let shown = path.display();
            let bytes = fs::read(path)
                .map_err(|error| format!("could not read the password from {shown}: {error}"))?;
            let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let password = Password::new(line.strip_suffix(b"\r").unwrap_or(line));
            return password.map(Some).map_err(|error| format!("could not use {shown}: {error}"));
        }
        let password = given.map(|Secret(text)| Password::new(text.as_bytes())).transpose();
        password.map_err(|error| format!("could not use --requirepass: {error}"))
    }
}
