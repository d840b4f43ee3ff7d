//! Addresses of buses: as much of them as leads to a socket in the file system.

/// The socket's path in an address such as `unix:path=/run/bus;tcp:host=h`: that of the
/// first alternative that has one. None if there is no such, or if it is escaped.
pub fn socket_of(address: &str) -> Option<&str> {
    let mut all = address.split(';').filter_map(|one| one.strip_prefix("unix:"));
    all.find_map(|options| {
        let mut paths = options.split(',').filter_map(|option| option.strip_prefix("path="));
        paths.find(|path| path.starts_with('/') && !path.contains('%'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_sockets() {
        for (address, socket) in [
            ("unix:path=/run/bus", Some("/run/bus")),
            ("unix:guid=00,path=/run/bus,x=y", Some("/run/bus")),
            ("tcp:host=h,port=1;unix:path=/a;unix:path=/b", Some("/a")),
            ("unix:abstract=/run/bus", None),
            ("unix:path=run", None),
            ("unix:path=/with%20space", None),
            ("tcp:path=/run/bus", None),
            ("", None),
        ] {
            assert_eq!(socket_of(address), socket, "{address}");
        }
    }
}
