//! The greeting: who we are, and whether descriptors may be passed.

/// A line of the other side's greeting is shorter.
pub const GREETING_LINE_MAX: usize = 512;

/// What is said first; the kernel vouches for who we are. The other side answers with
/// a line that begins with `OK `, and with another, `AGREE_UNIX_FD`, where descriptors
/// were asked for. In one go: a systemd that reads the end of the greeting together with
/// the first call leaves that call unread until another comes.
pub fn greeting(with_descriptors: bool) -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let hex: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
    let descriptors = if with_descriptors { "NEGOTIATE_UNIX_FD\r\n" } else { "" };
    format!("\0AUTH EXTERNAL {hex}\r\n{descriptors}BEGIN\r\n")
}
