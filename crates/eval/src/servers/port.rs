//! A port of the loopback for a server that is started later.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// A port of the loopback that the system gives to no other program. One end of a connection holds the port, and never
/// listens. A server that allows itself to take a used address, as servers do that are started again soon, listens
/// there all the same.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    _ends: [TcpStream; 2],
}

impl Port {
    pub(crate) fn held() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let other = TcpStream::connect(address)?;
        // The accepted end has the port of the listener, and its permission to share the port.
        let (end, _) = listener.accept()?;
        Ok(Port { address, _ends: [end, other] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_listens_at_a_port_that_is_held() {
        let held = Port::held().unwrap();
        // A server that is started again listens there again.
        for _ in 0..2 {
            let server = TcpListener::bind(held.address).unwrap();
            let client = TcpStream::connect(held.address).unwrap();
            let (_, from) = server.accept().unwrap();
            assert_eq!(from, client.local_addr().unwrap());
        }
        assert!(TcpStream::connect(held.address).is_err(), "nobody listens");
    }
}
