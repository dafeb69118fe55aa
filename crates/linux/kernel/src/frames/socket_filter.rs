//! Classic BPF on a packet socket: which frames, and how many bytes of each.
//!
//! The kernel takes the outer VLAN tag out of a frame before a filter sees it. Source: `Documentation/networking/filter.rst`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// Longest program that the kernel takes (`BPF_MAXINSNS`).
const INSTRUCTIONS_MOST: usize = 4096;

const LD_H_ABS: u16 = 0x28;
const LD_B_ABS: u16 = 0x30;
const LD_W_ABS: u16 = 0x20;
const LD_H_IND: u16 = 0x48;
const LDX_MSH: u16 = 0xb1;
const JEQ: u16 = 0x15;
const JSET: u16 = 0x45;
const RET: u16 = 0x06;

/// A classic BPF program over an Ethernet frame; its result is the number of bytes to keep, 0 for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFilter(Vec<Instruction>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// Why a text is no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Not the numbers that `tcpdump -ddd` prints.
    #[error("line {line} of the compiled filter is not four numbers: `{text}`")]
    Line {
        /// Which.
        line: usize,
        /// The text there.
        text: String,
    },
    /// More or fewer instructions than the first line says, or than the kernel takes.
    #[error("the compiled filter has {found} instructions, {stated} were stated; 1 to {INSTRUCTIONS_MOST} can be used")]
    Length {
        /// In the text.
        found: usize,
        /// In its first line.
        stated: usize,
    },
}

impl SocketFilter {
    /// All frames, `snap_bytes` of each.
    pub fn all(snap_bytes: u32) -> Self {
        Self(vec![ret(snap_bytes)])
    }

    /// No frame.
    pub fn nothing() -> Self {
        Self::all(0)
    }

    /// TCP, UDP and SCTP from or to `port`, over IPv4 or IPv6 without extension headers; as pcap's `port N` not later fragments.
    pub fn port(port: u16, snap_bytes: u32) -> Self {
        let port = u32::from(port);
        let mut code = Assembly::default();
        code.ipv4_or_ipv6(
            |code| {
                code.transport(23);
                code.first_fragment();
                code.load_x_ipv4();
                code.load(LD_H_IND, 14);
                code.accept_if(port);
                code.load(LD_H_IND, 16);
                code.accept_if(port);
            },
            |code| {
                code.transport(20);
                code.load(LD_H_ABS, 54);
                code.accept_if(port);
                code.load(LD_H_ABS, 56);
                code.accept_if(port);
            },
        );
        code.finish(snap_bytes)
    }

    /// What TCP, UDP or SCTP sends between `a` and `b`, either way; both of one family.
    pub fn flow(a: SocketAddr, b: SocketAddr, snap_bytes: u32) -> Self {
        let mut code = Assembly::default();
        let ways = [(a, b), (b, a)];
        match (a.ip(), b.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => code.ipv4_or_ipv6(
                |code| {
                    code.transport(23);
                    code.first_fragment();
                    code.load_x_ipv4();
                    for (from, to) in ways {
                        code.way(&[
                            (LD_W_ABS, 26, word(from.ip(), 0)),
                            (LD_W_ABS, 30, word(to.ip(), 0)),
                            (LD_H_IND, 14, from.port().into()),
                            (LD_H_IND, 16, to.port().into()),
                        ]);
                    }
                },
                |_| {},
            ),
            (IpAddr::V6(_), IpAddr::V6(_)) => code.ipv4_or_ipv6(
                |_| {},
                |code| {
                    code.transport(20);
                    for (from, to) in ways {
                        let mut tests = Vec::new();
                        for part in 0..4 {
                            tests.push((LD_W_ABS, 22 + 4 * part, word(from.ip(), part as usize)));
                            tests.push((LD_W_ABS, 38 + 4 * part, word(to.ip(), part as usize)));
                        }
                        tests.push((LD_H_ABS, 54, from.port().into()));
                        tests.push((LD_H_ABS, 56, to.port().into()));
                        code.way(&tests);
                    }
                },
            ),
            _ => {}
        }
        code.finish(snap_bytes)
    }

    /// What `tcpdump -ddd EXPRESSION` printed, keeping `snap_bytes` of each frame that it accepts.
    ///
    /// # Errors
    /// Any [`FilterError`].
    pub fn from_numbers(text: &str, snap_bytes: u32) -> Result<Self, FilterError> {
        let mut lines = text.lines();
        let stated = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
        let mut program = Vec::new();
        for (at, line) in lines.enumerate().take(INSTRUCTIONS_MOST + 1) {
            let numbers: Vec<u32> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            let wrong = || FilterError::Line { line: at + 2, text: line.chars().take(60).collect() };
            let &[code, if_true, if_false, value] = numbers.as_slice() else { return Err(wrong()) };
            let code = u16::try_from(code).map_err(|_| wrong())?;
            let if_true = u8::try_from(if_true).map_err(|_| wrong())?;
            let if_false = u8::try_from(if_false).map_err(|_| wrong())?;
            let value = if code == RET && value > 0 { snap_bytes } else { value };
            program.push(Instruction { code, if_true, if_false, value });
        }
        if program.len() != stated || !(1..=INSTRUCTIONS_MOST).contains(&stated) {
            return Err(FilterError::Length { found: program.len(), stated });
        }
        Ok(Self(program))
    }

    /// Puts it on `socket`, in place of one that is there. The kernel checks the program.
    ///
    /// # Errors
    /// `EINVAL` for a program that the kernel refuses.
    pub fn attach(&self, socket: &impl AsFd) -> io::Result<()> {
        let mut program: Vec<libc::sock_filter> = self
            .0
            .iter()
            .map(|step| libc::sock_filter { code: step.code, jt: step.if_true, jf: step.if_false, k: step.value })
            .collect();
        let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel reads `len` instructions out of a live vector and copies them.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const whole).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn ret(bytes: u32) -> Instruction {
    Instruction { code: RET, if_true: 0, if_false: 0, value: bytes }
}

/// The `part`th 32 bits of an address.
fn word(ip: IpAddr, part: usize) -> u32 {
    let bytes = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.chunks_exact(4).nth(part).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// A program being written. Jumps only skip forward, so a test that fails either goes to the end of its way or rejects at once.
#[derive(Debug, Default)]
struct Assembly {
    program: Vec<Instruction>,
    /// Tests whose success accepts.
    accepting: Vec<usize>,
}

impl Assembly {
    fn load(&mut self, code: u16, at: u32) {
        self.program.push(Instruction { code, if_true: 0, if_false: 0, value: at });
    }

    fn jump(&mut self, code: u16, value: u32, if_true: u8, if_false: u8) {
        self.program.push(Instruction { code, if_true, if_false, value });
    }

    /// X becomes the length of the IPv4 header.
    fn load_x_ipv4(&mut self) {
        self.load(LDX_MSH, 14);
    }

    /// Goes on where the loaded value is `value`, else accepts nothing here. Falls through either way but for acceptance.
    fn accept_if(&mut self, value: u32) {
        self.accepting.push(self.program.len());
        self.jump(JEQ, value, 0, 0);
    }

    /// Rejects all but TCP, UDP and SCTP, whose number is at `at`.
    fn transport(&mut self, at: u32) {
        self.load(LD_B_ABS, at);
        self.jump(JEQ, 6, 3, 0);
        self.jump(JEQ, 17, 2, 0);
        self.jump(JEQ, 132, 1, 0);
        self.program.push(ret(0));
    }

    /// Rejects later fragments of IPv4.
    fn first_fragment(&mut self) {
        self.load(LD_H_ABS, 20);
        self.jump(JSET, 0x1fff, 0, 1);
        self.program.push(ret(0));
    }

    /// Accepts where every `(load, offset, value)` holds, else goes on behind.
    fn way(&mut self, tests: &[(u16, u32, u32)]) {
        for (at, (code, offset, value)) in tests.iter().enumerate() {
            self.load(*code, *offset);
            if at + 1 == tests.len() {
                self.accept_if(*value);
            } else {
                let behind = 2 * (tests.len() - at - 1) as u8;
                self.jump(JEQ, *value, 0, behind);
            }
        }
    }

    /// Runs `ipv4` or `ipv6` by the EtherType; what either does not accept is rejected.
    fn ipv4_or_ipv6(&mut self, ipv4: impl FnOnce(&mut Self), ipv6: impl FnOnce(&mut Self)) {
        self.load(LD_H_ABS, 12);
        let test = self.program.len();
        self.jump(JEQ, 0x0800, 0, 0);
        ipv4(self);
        self.program.push(ret(0));
        self.program[test].if_false = (self.program.len() - test - 1) as u8;
        // The EtherType is no longer in A only where the part above ran, which has returned.
        self.jump(JEQ, 0x86dd, 1, 0);
        self.program.push(ret(0));
        ipv6(self);
        self.program.push(ret(0));
    }

    fn finish(mut self, snap_bytes: u32) -> SocketFilter {
        let accept = self.program.len();
        self.program.push(ret(snap_bytes));
        for test in self.accepting {
            self.program[test].if_true = (accept - test - 1) as u8;
        }
        SocketFilter(self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tcpdump_prints_is_read() {
        let text = "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n";
        let filter = SocketFilter::from_numbers(text, 96).unwrap();
        assert_eq!(filter.0.len(), 4);
        assert_eq!((filter.0[2].value, filter.0[3].value), (96, 0));
        assert_eq!(filter.0[1], Instruction { code: JEQ, if_true: 0, if_false: 1, value: 2048 });
        for wrong in ["", "2\n6 0 0 0\n", "1\nsyntax error\n", "1\n6 0 999 0\n", "0\n"] {
            assert!(SocketFilter::from_numbers(wrong, 96).is_err(), "{wrong}");
        }
    }

    /// Jumps have eight bits: a program whose parts are longer would wrap them.
    #[test]
    fn programs_are_short() {
        let v6 = |text: &str| text.parse::<SocketAddr>().unwrap();
        let flow = SocketFilter::flow(v6("[2001:db8::1]:1"), v6("[2001:db8::2]:2"), 96);
        assert!(flow.0.len() < 128, "{}", flow.0.len());
        let flow = SocketFilter::flow(v6("192.0.2.1:1"), v6("192.0.2.2:2"), 96);
        assert!(flow.0.len() < 128 && SocketFilter::port(5210, 96).0.len() < 128);
    }
}
