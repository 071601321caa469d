//! The server of a platform, which runs for one round: its own data, within the platform's limits.

use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bench::confine::Confinement;
use crate::bench::process::Launcher;
use crate::error::Error;
use crate::mbwu::command::{Running, fresh_folder};
use crate::servers::listening::{address_of, host_and_port};

/// The longest time until a server takes connections.
const START_MAX: Duration = Duration::from_secs(60);

/// Starts a server by its words, with a fresh folder on the medium for `{folder}` among them, and waits until something
/// listens at the address of `target`, such as `redis://10.0.0.7:6379`.
pub(crate) fn start(
    launcher: &Launcher,
    words: &[String],
    target: &str,
    cpus: &[usize],
    confinement: &Confinement,
) -> Result<Running, Error> {
    let (host, port) = target
        .split_once("://")
        .map(|(_, rest)| rest.split('/').next().unwrap_or(rest))
        .ok_or_else(|| {
            Error::invalid("work.server", target, "its target has no address; give redis://HOST:PORT")
        })
        .and_then(|host| {
            host_and_port(host, 6379).map_err(|reason| Error::invalid("work.server", target, reason))
        })?;
    let address = address_of(&host, port).map_err(|reason| Error::invalid("work.server", target, reason))?;
    if TcpStream::connect(address).is_ok() {
        let expected = "a server listens there already; end it, or give another address";
        return Err(Error::invalid("work.server", target, expected));
    }
    if words.is_empty() {
        return Err(Error::invalid("work.server", "", "give a command"));
    }
    let parent = confinement.folders().first().cloned().unwrap_or_else(std::env::temp_dir);
    let folder = fresh_folder(&parent, "server")?;
    let mut service = Running::start(launcher, words, Some(folder), cpus, confinement, Stdio::inherit())?;
    let (began, run) = (Instant::now(), service.line.clone());
    while TcpStream::connect(address).is_err() {
        let sentence = match service.why_ended() {
            Some(why) => format!("at its start, it {why}"),
            None if began.elapsed() > START_MAX => {
                format!("nothing listens at {address} after {} s", START_MAX.as_secs())
            }
            None => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        return Err(Error::Run { run, sentence, status: 1 });
    }
    Ok(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str], target: &str) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let launcher = Launcher { program: "/no/such/program".into(), arguments: vec![] };
        start(&launcher, &words, target, &[], &Confinement::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_server_that_cannot_serve_is_told() {
        // Nobody listens there.
        let target = "redis://127.0.0.1:1";
        assert!(refused(&["true"], target).contains("cannot start /no/such/program"));
        assert!(refused(&[], target).contains("give a command"));
        assert!(refused(&["true"], "btreemap").contains("its target has no address"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = format!("redis://{}", listener.local_addr().unwrap());
        assert!(refused(&["true"], &taken).contains("a server listens there already"));
    }
}
