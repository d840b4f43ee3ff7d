//! The pause program, as bytes.
//!
//! Every sandbox runs one, so it should cost one page and need no compiler.
//! It waits for SIGTERM or SIGINT and ends at once; for SIGCHLD it reaps.
//! Blocked signals reach even the first process of a pid namespace, so no
//! handlers are needed. x86-64 Linux only.

/// Where the kernel maps the file.
const BASE: u64 = 0x40_0000;
const HEADERS: u64 = 64 + 56;

/// The instructions, then the signal set they point at.
const CODE: &[&[u8]] = &[
    // rt_sigprocmask(SIG_SETMASK, &set, NULL, 8)
    &[0xbf, 2, 0, 0, 0],                // mov edi, 2
    &[0x48, 0x8d, 0x35, 0x58, 0, 0, 0], // lea rsi, [rip + 0x58]   (set)
    &[0x31, 0xd2],                      // xor edx, edx
    &[0x41, 0xba, 8, 0, 0, 0],          // mov r10d, 8
    &[0xb8, 14, 0, 0, 0],               // mov eax, 14
    &[0x0f, 0x05],                      // syscall
    // wait: rt_sigtimedwait(&set, NULL, NULL, 8)
    &[0x48, 0x8d, 0x3d, 0x42, 0, 0, 0], // lea rdi, [rip + 0x42]   (set)
    &[0x31, 0xf6],                      // xor esi, esi
    &[0x31, 0xd2],                      // xor edx, edx
    &[0x41, 0xba, 8, 0, 0, 0],          // mov r10d, 8
    &[0xb8, 128, 0, 0, 0],              // mov eax, 128
    &[0x0f, 0x05],                      // syscall
    &[0x83, 0xf8, 15],                  // cmp eax, SIGTERM
    &[0x74, 0x23],                      // je exit
    &[0x83, 0xf8, 2],                   // cmp eax, SIGINT
    &[0x74, 0x1e],                      // je exit
    // reap: wait4(-1, NULL, WNOHANG, NULL) until nobody is left
    &[0x48, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff], // mov rdi, -1
    &[0x31, 0xf6],                               // xor esi, esi
    &[0xba, 1, 0, 0, 0],                         // mov edx, WNOHANG
    &[0x45, 0x31, 0xd2],                         // xor r10d, r10d
    &[0xb8, 61, 0, 0, 0],                        // mov eax, 61
    &[0x0f, 0x05],                               // syscall
    &[0x85, 0xc0],                               // test eax, eax
    &[0x7f, 0xe4],                               // jg reap
    &[0xeb, 0xc0],                               // jmp wait
    // exit: exit_group(0)
    &[0x31, 0xff],         // xor edi, edi
    &[0xb8, 231, 0, 0, 0], // mov eax, 231
    &[0x0f, 0x05],         // syscall
    // set: SIGINT | SIGTERM | SIGCHLD
    &[0x02, 0x40, 0x01, 0, 0, 0, 0, 0],
];

/// The program as a static ELF executable.
pub fn program() -> Vec<u8> {
    let code = CODE.concat();
    let size = HEADERS + code.len() as u64;
    let mut elf = Vec::new();
    elf.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    elf.extend(2u16.to_le_bytes()); // ET_EXEC
    elf.extend(62u16.to_le_bytes()); // EM_X86_64
    elf.extend(1u32.to_le_bytes());
    elf.extend((BASE + HEADERS).to_le_bytes()); // entry
    elf.extend(64u64.to_le_bytes()); // program headers follow
    elf.extend(0u64.to_le_bytes()); // no section headers
    elf.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        elf.extend(half.to_le_bytes());
    }
    elf.extend(1u32.to_le_bytes()); // PT_LOAD
    elf.extend(5u32.to_le_bytes()); // read, execute
    for word in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

// It runs the program, so it needs the processor the program is written for.
#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process};

    #[test]
    fn it_waits_and_ends_cleanly_on_sigterm() {
        let path = std::env::temp_dir().join(format!("klet-pause-{}", std::process::id()));
        std::fs::write(&path, super::program()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::CHILD).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "it must outlive SIGCHLD");
        kill_process(pid, Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(0), None));
        std::fs::remove_file(&path).unwrap();
    }
}
