//! An event as the program writes it: `struct owner_event` in `intf.h`.

/// `MAX_ANCESTORS` in `intf.h`.
const ANCESTORS: usize = 16;
/// Its size.
#[cfg_attr(not(bpf_programs), allow(dead_code))]
const EVENT_BYTES: usize = 48 + 4 * ANCESTORS;

/// Something that happened to a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerEvent {
    /// On `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The socket's cookie, as sock_diag(7) has it.
    pub cookie: u64,
    /// The process; `None` for a connection that was established, which no process does.
    pub by: Option<Owner>,
    /// Whether the connection began: by connect(2), or established.
    pub begins: bool,
}

/// A process that opened or closed a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// The name of its command, up to 15 bytes.
    pub name: String,
    /// Its control group (version 2).
    pub cgroup_id: u64,
    /// Its parent, the parent's parent and so on.
    pub ancestors: Vec<u32>,
}

impl OwnerEvent {
    /// Reads an event; `None` where the bytes are none.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..EVENT_BYTES)?;
        let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let kind = u32_at(24)?;
        let ancestors =
            (0..ANCESTORS).filter_map(|number| u32_at(32 + 4 * number)).take_while(|pid| *pid > 0).collect();
        let comm = &bytes[32 + 4 * ANCESTORS..];
        let name = comm.split(|byte| *byte == 0).next().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let owner = || Some(Owner { pid: u32_at(28)?, name, cgroup_id: u64_at(16)?, ancestors });
        Some(Self {
            at_ns: u64_at(0)?,
            cookie: u64_at(8)?,
            by: if kind == 1 { None } else { owner() },
            begins: kind < 3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back() {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..8].copy_from_slice(&7_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&8_u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&9_u64.to_ne_bytes());
        bytes[24..28].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&4711_u32.to_ne_bytes());
        bytes[32..36].copy_from_slice(&42_u32.to_ne_bytes());
        bytes[36..40].copy_from_slice(&1_u32.to_ne_bytes());
        bytes[96..100].copy_from_slice(b"curl");
        let owner = Owner { pid: 4711, name: "curl".into(), cgroup_id: 9, ancestors: vec![42, 1] };
        let event = OwnerEvent { at_ns: 7, cookie: 8, by: Some(owner), begins: false };
        assert_eq!(OwnerEvent::parse(&bytes), Some(event));
        bytes[24..28].copy_from_slice(&1_u32.to_ne_bytes());
        assert_eq!(OwnerEvent::parse(&bytes).map(|event| (event.by, event.begins)), Some((None, true)));
        assert_eq!(OwnerEvent::parse(&bytes[1..]), None);
    }
}
