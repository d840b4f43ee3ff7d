//! D-Bus: messages, and the greeting before them.
//!
//! Owns how bytes become messages and back, as far as systemd and logind need it.
//! Never opens a socket: the conversation with systemd about control groups blocks for
//! moments, the one with logind waits for days, and each reads in its own way.
//! Format: the D-Bus specification.

mod address;
mod greeting;
mod wire;

pub use address::socket_of;
pub use greeting::{GREETING_LINE_MAX, greeting};
pub use wire::{
    Body, Kind, MESSAGE_MAX, Message, PREFIX, Property, Reader, Target, Value, WireError, align,
    call, put_array, put_field, put_signature, put_u32, rest_of,
};

/// The bus itself.
pub const BUS: Target = Target {
    service: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
};

/// Where the system's bus is.
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
