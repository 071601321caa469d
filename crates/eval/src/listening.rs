//! Servers that somebody else started: their processes, found by the addresses at which they listen, and the CPU time
//! of these.
//!
//! Servers of another machine, or of a user whose processes this one may not look into, are not found. Their CPU time
//! is then unknown, never zero.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::server_process::{cpu_sec_of, wait_until_quiet};

/// A node of Cassandra without requests takes up to 2 % of a processor for its timers.
const QUIET_SHARE: f64 = 0.05;
/// A period in which two hundredths of a second, the steps of the CPU clock, are too many.
const WATCHED: Duration = Duration::from_millis(300);
const QUIET_PERIODS: usize = 2;
/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// The processes of servers on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServers {
    pids: Vec<u32>,
}

impl LocalServers {
    /// The processes that listen at these addresses; nothing unless all of them are found.
    pub fn at(addresses: &[SocketAddr]) -> Option<Self> {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
        let mut pids = Vec::new();
        for address in addresses {
            // Only an address of this machine can be bound.
            UdpSocket::bind((address.ip(), 0)).ok()?;
            let inode = tables.iter().find_map(|table| inode_in(table, *address))?;
            pids.push(owner_of(&inode)?);
        }
        pids.sort_unstable();
        pids.dedup();
        Some(LocalServers { pids })
    }

    /// CPU seconds of all their threads so far; nothing if one of them has ended.
    pub fn cpu_sec(&self) -> Option<f64> {
        self.pids.iter().map(|pid| cpu_sec_of(*pid)).sum()
    }

    /// Waits until they do nothing for most of a second, or for a minute at most.
    pub fn wait_until_quiet(&self) {
        let cpu_sec = || self.cpu_sec().unwrap_or(0.0);
        wait_until_quiet(cpu_sec, QUIET_SHARE, WATCHED, QUIET_PERIODS, &AtomicBool::new(false));
    }
}

/// The inode of the socket that listens at an address, or at its port of all addresses, in `/proc/net/tcp` or its
/// sibling for IPv6.
fn inode_in(table: &str, address: SocketAddr) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let ip = ip_of(ip)?.to_canonical();
        let is_there = port == address.port() && (ip == address.ip().to_canonical() || ip.is_unspecified());
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
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
        files
            .map(|file| fs::read_link(file.path()))
            .any(|link| link.is_ok_and(|link| link.as_os_str() == &*socket))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_is_found_by_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let found = LocalServers::at(&[address]).unwrap();
        assert_eq!(found, LocalServers { pids: vec![std::process::id()] });
        assert!(found.cpu_sec().is_some());
        let elsewhere = SocketAddr::new([127, 9, 9, 9].into(), address.port());
        assert_eq!(LocalServers::at(&[address, elsewhere]), None, "nobody listens there");
        let of_another_machine = SocketAddr::new([192, 0, 2, 1].into(), address.port());
        assert_eq!(LocalServers::at(&[of_another_machine]), None);
    }

    #[test]
    fn a_socket_of_all_addresses_serves_each() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(LocalServers::at(&[SocketAddr::new([127, 0, 0, 7].into(), port)]).is_some());
    }

    #[test]
    fn a_server_that_has_ended_has_no_cpu_time() {
        assert_eq!(LocalServers { pids: vec![std::process::id(), u32::MAX] }.cpu_sec(), None);
    }

    #[test]
    fn addresses_are_read_in_both_families() {
        assert_eq!(ip_of("0100007F"), Some([127, 0, 0, 1].into()));
        let mapped = ip_of("0000000000000000FFFF00000100007F").unwrap();
        assert_eq!(mapped.to_canonical(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(ip_of("zz"), None);
    }
}
