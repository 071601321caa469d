//! Servers that somebody else started: their processes, found by the addresses at which they listen, and the CPU time
//! of these.
//!
//! Servers of another machine are not found, nor are processes that this one may not look into, nor those behind a
//! program that listens for their container. Their CPU time is then unknown, never zero.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::AtomicBool;

use crate::servers::process::{is_tree_busy, pids, work_of_tree};
use crate::servers::quiet::{Processes, Quiet};
use crate::target::Work;

/// The words of a target about itself, if its servers were not quiet in time.
pub const RESTLESS: &str = "; IT WAS NOT QUIET IN TIME, and CPU time of later work is left out";
/// Programs of Docker and Podman that listen at the ports of containers.
const FORWARDERS: [&str; 2] = ["docker-proxy", "rootlessport"];
/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Reads `HOST`, `HOST:PORT` or `[IPV6]:PORT`, with the usual port where none is given.
///
/// # Errors
///
/// A sentence that begins with "it".
pub fn host_and_port(text: &str, usual_port: u16) -> Result<(String, u16), String> {
    let bad = || format!("it has a host `{text}`; give HOST or HOST:PORT, such as 127.0.0.1:{usual_port}");
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(usual_port), |port| port.parse().map_err(|_| bad()))?;
    if host.is_empty() { Err(bad()) } else { Ok((host.to_owned(), port)) }
}

/// The first address of a host.
///
/// # Errors
///
/// A sentence that begins with "it".
pub fn address_of(host: &str, port: u16) -> Result<SocketAddr, String> {
    let found = (host, port).to_socket_addrs().map_err(|error| error.to_string());
    let first = found.and_then(|mut all| all.next().ok_or_else(|| "it has no address".into()));
    first.map_err(|reason| format!("it cannot find the host {host}: {reason}"))
}

/// Servers on this machine, and their processes; `None` if nobody may look into one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServers {
    pids: Option<Vec<u32>>,
}

impl LocalServers {
    /// The servers that listen at these addresses; nothing if one of them is on another machine.
    pub fn at(addresses: &[SocketAddr]) -> Option<Self> {
        let owners = addresses.iter().map(owner_at).collect::<Option<Vec<Option<u32>>>>()?;
        let mut pids: Option<Vec<u32>> = owners.into_iter().collect();
        pids.iter_mut().for_each(|pids| pids.sort_unstable());
        pids.iter_mut().for_each(Vec::dedup);
        Some(LocalServers { pids })
    }

    /// The place of the work of servers, as [`LocalServers::at`] found them.
    pub fn work(servers: Option<&Self>) -> Work {
        servers.map_or(Work::Elsewhere, |servers| Work::Servers(servers.cpu_sec()))
    }

    /// The words of a target about the CPU time of servers, as [`LocalServers::at`] found them. Empty where that time
    /// is unknown.
    pub fn about_cpu_time(servers: Option<&Self>) -> &'static str {
        match servers.and_then(|servers| servers.pids.as_ref()) {
            Some(_) => "; CPU time is of the server and its child processes, without daemons, which leave it",
            None => "",
        }
    }

    /// CPU seconds of all their threads so far, and of processes that they started; nothing if one of them has ended. A
    /// daemon has another parent than the server, and nothing tells that it belongs to it.
    pub fn cpu_sec(&self) -> Option<f64> {
        self.pids.as_ref()?.iter().map(|pid| Some(work_of_tree(*pid)?.0)).sum()
    }

    /// The processors that they may use, such as `0-1`; those of different servers have `and` between them.
    pub fn processors(&self) -> Option<String> {
        let mut all = self.processor_lists()?;
        all.dedup();
        Some(all.join(" and "))
    }

    /// The numbers of the processors that one of them may use.
    pub fn processor_numbers(&self) -> Option<Vec<usize>> {
        numbers_in(&self.processor_lists()?.join(","))
    }

    fn processor_lists(&self) -> Option<Vec<String>> {
        self.pids.as_ref()?.iter().map(|pid| processors_of(&pid.to_string())).collect()
    }

    /// Waits until they do nothing for most of a second, or for a minute at most. Whether they do nothing then.
    pub fn wait_until_quiet(&self) -> bool {
        let usual = Quiet::BETWEEN_WINDOWS;
        let share = usual.share * self.pids.as_ref().map_or(1, Vec::len) as f64;
        Quiet { share, ..usual }.wait_for(self, &AtomicBool::new(false)).1
    }
}

impl Processes for LocalServers {
    fn cpu_sec(&self) -> f64 {
        LocalServers::cpu_sec(self).unwrap_or(0.0)
    }

    fn is_busy(&self) -> bool {
        self.pids.iter().flatten().any(|pid| is_tree_busy(*pid))
    }
}

/// The processors that this process may use.
pub fn own_processors() -> String {
    processors_of("self").unwrap_or_else(|| "unknown".into())
}

/// The numbers of the processors that this process may use.
pub(crate) fn own_processor_numbers() -> Option<Vec<usize>> {
    numbers_in(&processors_of("self")?)
}

/// The numbers in a list such as `0-3,8`, each once.
fn numbers_in(list: &str) -> Option<Vec<usize>> {
    let mut numbers = BTreeSet::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers.into_iter().collect())
}

fn processors_of(pid: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// The process that listens at an address of this machine, or `None` within if nobody may look into it.
fn owner_at(address: &SocketAddr) -> Option<Option<u32>> {
    // Only an address of this machine, and of this namespace, can be bound.
    let inode = match UdpSocket::bind((address.ip(), 0)) {
        Ok(_) => inode_in("self", *address, true),
        Err(_) => Some(other_namespaces().iter().find_map(|pid| inode_in(pid, *address, false))?),
    };
    Some(inode.and_then(|inode| owner_of(&inode)).filter(|pid| !is_forwarder(*pid)))
}

/// Whether a process listens for a container, and so does none of the server's work.
fn is_forwarder(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| FORWARDERS.contains(&name.trim_end()))
}

/// A process of each network namespace of this machine, but for that of this process.
fn other_namespaces() -> Vec<String> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let mut known = vec![namespace("self")];
    let is_new = |pid: &String| {
        let found = namespace(pid);
        let is_new = found.is_some() && !known.contains(&found);
        if is_new {
            known.push(found);
        }
        is_new
    };
    pids().map(|pid| pid.to_string()).filter(is_new).collect()
}

/// The inode of the socket that listens at an address, in the network namespace of a process. In a namespace whose
/// addresses are `own` the socket may listen at its port of all addresses.
fn inode_in(pid: &str, address: SocketAddr, own: bool) -> Option<String> {
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    tables.iter().flatten().find_map(|table| inode_of(table, address, own))
}

/// The same in `/proc/PID/net/tcp` or its sibling for IPv6.
fn inode_of(table: &str, address: SocketAddr, own: bool) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let (ip, wanted) = (ip_of(ip)?.to_canonical(), address.ip().to_canonical());
        // A socket of all addresses of IPv6 serves those of IPv4, too, and not the other way round.
        let serves_all = own && ip.is_unspecified() && (ip.is_ipv6() || wanted.is_ipv4());
        let is_there = port == address.port() && (ip == wanted || serves_all);
        (is_there && *fields.get(3)? == LISTENS).then_some(())?;
        Some((*fields.get(9)?).to_owned())
    })
}

/// An address as the kernel prints it: words of 32 bits, each in the order of the machine.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let words = hex.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// The process that has the socket of this inode open.
fn owner_of(inode: &str) -> Option<u32> {
    let socket = format!("socket:[{inode}]");
    pids().find(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
        files
            .map(|file| fs::read_link(file.path()))
            .any(|link| link.is_ok_and(|link| link.as_os_str() == &*socket))
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::servers::process::cpu_sec_of;

    #[test]
    fn a_server_is_found_by_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let found = LocalServers::at(&[address]).unwrap();
        assert_eq!(found, LocalServers { pids: Some(vec![std::process::id()]) });
        assert!(matches!(LocalServers::work(Some(&found)), Work::Servers(Some(_))));
        assert!(LocalServers::about_cpu_time(Some(&found)).contains("without daemons"));
        let nobody = SocketAddr::new([127, 9, 9, 9].into(), address.port());
        let hidden = LocalServers::at(&[address, nobody]).unwrap();
        assert_eq!((&hidden, hidden.processor_numbers()), (&LocalServers { pids: None }, None));
        assert_eq!(LocalServers::work(Some(&hidden)), Work::Servers(None));
        assert_eq!([Some(&hidden), None].map(LocalServers::about_cpu_time), ["", ""]);
        let of_another_machine = SocketAddr::new([192, 0, 2, 1].into(), address.port());
        let elsewhere = LocalServers::at(&[address, of_another_machine]);
        assert_eq!(LocalServers::work(elsewhere.as_ref()), Work::Elsewhere);
    }

    #[test]
    fn a_program_that_listens_for_a_container_is_no_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(owner_at(&address), Some(Some(std::process::id())));
        // The shell has the socket, alone once its command is dropped here, and stops.
        let named = "echo docker-proxy > /proc/$$/comm; echo named; kill -STOP $$";
        let mut shell = Command::new("sh");
        shell.args(["-c", named]).stdin(OwnedFd::from(listener)).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        drop(shell);
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let found = [child.id(), std::process::id()].map(is_forwarder);
        let owner = owner_at(&address);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((said.as_str(), found, owner), ("named\n", [true, false], Some(None)));
    }

    #[test]
    fn a_socket_of_all_addresses_serves_each() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(LocalServers::at(&[SocketAddr::new([127, 0, 0, 7].into(), port)]).is_some());
    }

    #[test]
    fn a_socket_of_all_addresses_serves_those_of_its_namespace_alone() {
        let line = "0: 00000000:2352 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1";
        let table = |line: &str| format!("sl local_address\n{line}\n");
        let address: SocketAddr = "127.0.0.1:9042".parse().unwrap();
        assert_eq!(inode_of(&table(line), address, true).as_deref(), Some("4711"));
        assert_eq!(inode_of(&table(line), address, false), None);
        let exact = line.replacen("00000000", "0100007F", 1);
        assert_eq!(inode_of(&table(&exact), address, false).as_deref(), Some("4711"));
    }

    /// Another program may listen at the same port of IPv6.
    #[test]
    fn a_socket_of_all_addresses_of_ipv4_serves_none_of_ipv6() {
        let serves = |local: &str, address: &str| {
            let line = format!("0: {local}:2352 0:0 0A 0:0 00:0 0 0 0 4711 1");
            inode_of(&format!("sl local_address\n{line}\n"), address.parse().unwrap(), true).is_some()
        };
        let both = |bytes: usize| ["[::1]:9042", "127.0.0.1:9042"].map(|to| serves(&"00".repeat(bytes), to));
        assert_eq!([both(4), both(16)], [[false, true], [true, true]]);
    }

    #[test]
    fn processors_are_told() {
        let own = LocalServers { pids: Some(vec![std::process::id(); 2]) };
        let told = own.processors().unwrap();
        assert_eq!(told, own_processors());
        assert!(told.starts_with(|first: char| first.is_ascii_digit()), "{told}");
        assert_eq!(LocalServers { pids: Some(vec![u32::MAX]) }.processors(), None);
        assert_eq!(own.processor_numbers(), own_processor_numbers());
        assert_eq!(numbers_in("8,0-2,1"), Some(vec![0, 1, 2, 8]));
        assert_eq!(numbers_in("unknown"), None);
    }

    #[test]
    fn a_process_that_a_server_starts_counts() {
        let server = LocalServers { pids: Some(vec![std::process::id()]) };
        // Some seconds at most, whatever becomes of this test.
        let busy = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh").args(["-c", busy]).spawn().unwrap();
        let own = || cpu_sec_of(std::process::id()).unwrap();
        // As long as it takes: without the child's time this never ends.
        while server.cpu_sec().unwrap() - own() < 0.05 {
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // This process works on between two readings, so that its own time is read first here.
        let own_sec = own();
        let ended_sec = server.cpu_sec().unwrap() - own_sec;
        assert!(ended_sec > 0.04, "a child that has ended has worked, too: {ended_sec}");
    }

    #[test]
    fn a_server_that_has_ended_has_no_cpu_time() {
        assert_eq!(LocalServers { pids: Some(vec![std::process::id(), u32::MAX]) }.cpu_sec(), None);
    }

    #[test]
    fn addresses_are_read_in_both_families() {
        assert_eq!(ip_of("0100007F"), Some([127, 0, 0, 1].into()));
        let mapped = ip_of("0000000000000000FFFF00000100007F").unwrap();
        assert_eq!(mapped.to_canonical(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(ip_of("zz"), None);
    }
}
