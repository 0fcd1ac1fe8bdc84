//! Which URLs and addresses may be called. The refusal never says which rule decided.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use frontdesk_core::port::outcall::OutcallError;
use ipnet::IpNet;
use url::{Host, Url};

const URL_MAX_BYTES: usize = 2048;

/// Private addresses that the operator allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    Net(IpNet),
    Host(String),
}

impl Allow {
    pub fn parse(entry: &str) -> Option<Self> {
        if let Ok(net) = entry.parse() {
            return Some(Self::Net(net));
        }
        if let Ok(address) = entry.parse::<IpAddr>() {
            return Some(Self::Net(address.into()));
        }
        let name = entry.trim_end_matches('.').to_ascii_lowercase();
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        plain.then_some(Self::Host(name))
    }
}

pub(super) struct Guard {
    pub(super) allow: Vec<Allow>,
}

impl Guard {
    pub(super) fn admits_address(&self, address: IpAddr) -> bool {
        let real = canonical(address);
        let named = |entry: &Allow| matches!(entry, Allow::Net(net) if net.contains(&real));
        is_public(real) || self.allow.iter().any(named)
    }

    /// A name that the operator allows may resolve to anything.
    pub(super) fn admits_name(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.allow.iter().any(|entry| matches!(entry, Allow::Host(host) if *host == name))
    }

    /// Checks for every URL, whoever configured it.
    pub(super) fn parse(text: &str) -> Result<Url, OutcallError> {
        if text.len() > URL_MAX_BYTES {
            return Err(OutcallError::BadUrl(format!("longer than {URL_MAX_BYTES} bytes")));
        }
        let url = Url::parse(text).map_err(|error| OutcallError::BadUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OutcallError::BadUrl("the scheme must be http or https".into()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(OutcallError::Refused);
        }
        Ok(url)
    }

    pub(super) fn check(&self, text: &str) -> Result<Url, OutcallError> {
        let url = Self::parse(text)?;
        // The parser has turned octal, hex and short forms of IPv4 into addresses already.
        let admitted = match url.host() {
            Some(Host::Ipv4(address)) => self.admits_address(address.into()),
            Some(Host::Ipv6(address)) => self.admits_address(address.into()),
            Some(Host::Domain(name)) => self.admits_name(name) || !is_local_name(name),
            None => false,
        };
        if admitted { Ok(url) } else { Err(OutcallError::Refused) }
    }
}

/// Names that mean this machine or this network, whatever a resolver says.
fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || [".localhost", ".local", ".internal"].iter().any(|end| name.ends_with(end))
}

/// The address that is really meant: IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4) is unwrapped.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let s = v6.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => v4(high, low),
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let special = v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local() // metadata services live here
        || v4.is_broadcast()
        || v4.is_documentation()
        || v4.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    // Global unicast only, without the ranges that are reserved for documentation and tunnels.
    let s = v6.segments();
    let global = s[0] & 0xe000 == 0x2000;
    let documentation = s[0] == 0x2001 && s[1] == 0x0db8;
    let protocol = s[0] == 0x2001 && s[1] < 0x0200; // Teredo, ORCHID and kin
    global && !documentation && !protocol && s[0] != 0x3fff
}
