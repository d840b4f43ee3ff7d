//! The host's own addresses: what its interfaces, its name and its routes say.
//!
//! Reads /proc, asks the resolver, and lets the kernel choose a route. Sends nothing
//! but what the resolver sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

use super::Fs;

/// How long a resolver may take.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a table in /proc that are read.
const TABLE_MAX: usize = 4 << 20;

/// Addresses of the interfaces, loopback among them.
pub fn interfaces(fs: &dyn Fs) -> Vec<IpAddr> {
    let text = |path: &str| match fs.read(Path::new(path), TABLE_MAX) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // A kernel without the family.
        Err(_) => String::new(),
    };
    let mut all = local_v4(&text("/proc/net/fib_trie"));
    all.extend(local_v6(&text("/proc/net/if_inet6")));
    all
}

/// What the host's name stands for; nothing if it stands for nothing.
pub async fn by_name(name: &str) -> Vec<IpAddr> {
    match timeout(LOOKUP_LIMIT, lookup_host((name, 0))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        _ => Vec::new(),
    }
}

/// The address that packets to the outside carry.
///
/// # Errors
/// There is no way to the outside.
pub async fn by_route(v6: bool) -> Result<IpAddr, String> {
    // Addresses that exist nowhere: connecting a datagram socket only chooses a route.
    let (from, to): (IpAddr, IpAddr) = match v6 {
        false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        true => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let chosen = async {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).await?;
        socket.connect(SocketAddr::new(to, 9)).await?;
        socket.local_addr()
    };
    let chosen: std::io::Result<SocketAddr> = chosen.await;
    chosen.map(|address| address.ip()).map_err(|error| format!("no default route: {error}"))
}

/// Leaves of the kernel's table of routes that are this host's own.
fn local_v4(trie: &str) -> Vec<IpAddr> {
    let (mut found, mut leaf) = (Vec::new(), None);
    for line in trie.lines() {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            leaf = address.trim().parse::<Ipv4Addr>().ok();
        } else if line.trim() == "/32 host LOCAL"
            && let Some(address) = leaf.take().map(IpAddr::from)
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

fn local_v6(table: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let digits = line.split_whitespace().next()?;
        let bits = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32)?;
        Some(IpAddr::from(Ipv6Addr::from_bits(bits)))
    };
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;

    #[test]
    fn tables_of_the_kernel() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
                    |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n\
                    Local:\n     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.255\n        \
                    /32 link BROADCAST\n";
        assert_eq!(local_v4(trie), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        let table = "fe800000000000000000000000000001 02 40 20 80 eth0\nodd line\n";
        assert_eq!(local_v6(table), ["fe80::1".parse::<IpAddr>().unwrap()]);
        assert_eq!(local_v4("\u{0}|-- x"), [] as [IpAddr; 0]);
    }

    #[tokio::test]
    async fn this_machine_has_a_loopback() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(interfaces(&RealFs).contains(&loopback));
        assert!(by_name("localhost").await.iter().any(IpAddr::is_loopback));
        assert_eq!(by_name("no-such-name.invalid").await, [] as [IpAddr; 0]);
    }
}
