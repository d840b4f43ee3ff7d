//! Who may hold a connection: so many at once, and so many of one peer.
//!
//! Owns the table of connections. When it is full, or a peer has its share, the oldest
//! connection that has not shown who it is must go, of the peer that has most of them;
//! those that were authenticated stay. So thousands of connections that never say
//! anything cost nobody else theirs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// At once.
    pub total: usize,
    /// At once from one address, or one IPv6 network of 64 bits. An API server is one
    /// peer, with a connection for each log that somebody follows.
    pub per_peer: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: 1000, per_peer: 500 }
    }
}

struct Seat {
    peer: IpAddr,
    proven: bool,
    evict: oneshot::Sender<()>,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// In the order of arrival.
    seats: BTreeMap<u64, Seat>,
}

/// The table of connections.
pub(crate) struct Slots {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

/// The right to be connected; given back when dropped.
pub(crate) struct Ticket {
    slots: Arc<Slots>,
    id: u64,
}

/// What counts as one peer.
pub(crate) fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        v4 => v4,
    }
}

impl Slots {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection, and when it must go; none if there is no room.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Option<(Ticket, oneshot::Receiver<()>)> {
        let peer = peer(address);
        let mut table = self.table();
        if table.seats.values().filter(|seat| seat.peer == peer).count() >= self.limits.per_peer {
            table.evict_of(peer)?;
        } else if table.seats.len() >= self.limits.total {
            let greediest = table.greediest(peer)?;
            table.evict_of(greediest)?;
        }
        let (evict, evicted) = oneshot::channel();
        let id = table.next;
        table.next += 1;
        table.seats.insert(id, Seat { peer, proven: false, evict });
        drop(table);
        Some((Ticket { slots: Arc::clone(self), id }, evicted))
    }
}

impl Table {
    /// The peer with most connections that showed nothing, the one counted that it wants.
    fn greediest(&self, newcomer: IpAddr) -> Option<IpAddr> {
        let mut counts: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (id, seat) in self.seats.iter().filter(|(_, seat)| !seat.proven) {
            counts.entry(seat.peer).or_insert((0, Reverse(*id))).0 += 1;
        }
        if let Some((count, _)) = counts.get_mut(&newcomer) {
            *count += 1;
        }
        // Among equals, whoever has been here longest.
        counts.into_iter().max_by_key(|(_, rank)| *rank).map(|(peer, _)| peer)
    }

    fn evict_of(&mut self, peer: IpAddr) -> Option<()> {
        let mut seats = self.seats.iter();
        let (&id, _) = seats.find(|(_, seat)| seat.peer == peer && !seat.proven)?;
        let seat = self.seats.remove(&id)?;
        // One that is over already has nobody to tell.
        let _ = seat.evict.send(());
        Some(())
    }
}

impl Ticket {
    /// The connection has shown who it is: it stays.
    pub(crate) fn prove(&self) {
        if let Some(seat) = self.slots.table().seats.get_mut(&self.id) {
            seat.proven = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.slots.table().seats.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_network_is_one_peer() {
        assert_eq!(peer(ip("10.0.0.1")), ip("10.0.0.1"));
        assert_eq!(peer(ip("::ffff:10.0.0.1")), ip("10.0.0.1"));
        assert_eq!(peer(ip("2001:db8::1:2:3:4")), peer(ip("2001:db8::9")));
        assert_ne!(peer(ip("2001:db8:0:1::1")), peer(ip("2001:db8::1")));
    }

    #[test]
    fn the_oldest_unproven_of_the_greediest_goes() {
        let slots = Slots::new(ConnectionLimits { total: 4, per_peer: 3 });
        let mut held: Vec<_> = (0..3).map(|_| slots.take(ip("10.0.0.1")).unwrap()).collect();
        let (other, mut other_evicted) = slots.take(ip("10.0.0.2")).unwrap();
        held[0].0.prove();
        // Full: the greedy one loses its oldest that showed nothing.
        let (third, mut third_evicted) = slots.take(ip("10.0.0.3")).unwrap();
        assert!(held[0].1.try_recv().is_err() && held[1].1.try_recv().is_ok());
        assert!(other_evicted.try_recv().is_err());
        // A second connection of it fits after that only at its own cost.
        drop(held.remove(1));
        let (again, _evicted) = slots.take(ip("10.0.0.1")).unwrap();
        assert!(held[1].1.try_recv().is_ok());
        // All have shown who they are: no room.
        for ticket in [&other, &third, &again] {
            ticket.prove();
        }
        assert!(slots.take(ip("10.0.0.4")).is_none());
        drop(other);
        assert!(slots.take(ip("10.0.0.4")).is_some());
        assert!(third_evicted.try_recv().is_err());
    }

    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let slots = Slots::new(ConnectionLimits { total: 10, per_peer: 2 });
        let held: Vec<_> = (0..2).map(|_| slots.take(ip("10.0.0.1")).unwrap()).collect();
        held.iter().for_each(|(ticket, _)| ticket.prove());
        assert!(slots.take(ip("10.0.0.1")).is_none());
        assert!(slots.take(ip("10.0.0.2")).is_some());
        drop(held);
        assert!(slots.table().seats.is_empty());
    }
}
