//! Network namespaces on one bridge, one for each machine; a machine outside behind a router; and cables that can be pulled or made
//! unreliable.

use std::process::{Command, Stdio};

/// Runs `ip` with these arguments.
#[track_caller]
pub(super) fn ip(words: &str) {
    let done = Command::new("ip").args(words.split_whitespace()).output();
    let done = done.unwrap_or_else(|error| panic!("`ip` is needed ({error}): run `make setup`"));
    assert!(done.status.success(), "ip {words}: {} (root is needed)", String::from_utf8_lossy(&done.stderr));
}

/// Runs a line of shell in a namespace.
#[track_caller]
fn inside(space: &str, line: &str) {
    let done = Command::new("ip").args(["netns", "exec", space, "sh", "-c", line]).output().expect("`ip` runs");
    assert!(done.status.success(), "{line}: {} (`make setup` installs nft)", String::from_utf8_lossy(&done.stderr));
}

/// The bridge and everything connected to it. It is removed when this is dropped.
pub(super) struct Cables {
    /// Distinguishes the namespaces of this test from others on this machine.
    tag: String,
    net: u32,
    machines: usize,
    outside: bool,
}

impl Cables {
    pub(super) fn new(machines: usize) -> Cables {
        let pid = std::process::id();
        let tag = format!("wl{}{machines}", pid % 100_000);
        let cables = Cables { tag, net: (pid * 7 + machines as u32) % 250, machines, outside: false };
        let (tag, bridge) = (&cables.tag, cables.bridge());
        ip(&format!("link add {tag} type bridge"));
        ip(&format!("addr add {bridge}/24 dev {tag}"));
        ip(&format!("link set {tag} up"));
        for number in 1..=machines {
            let (space, inside, outside) = (cables.space(number), format!("{tag}i{number}"), format!("{tag}o{number}"));
            ip(&format!("netns add {space}"));
            ip(&format!("link add {outside} type veth peer name {inside}"));
            ip(&format!("link set {outside} master {tag} up"));
            ip(&format!("link set {inside} netns {space}"));
            ip(&format!("-n {space} link set lo up"));
            ip(&format!("-n {space} addr add {}/24 brd + dev {inside}", cables.address(number)));
            ip(&format!("-n {space} link set {inside} up"));
        }
        cables
    }

    /// The same, with one more machine in a network of its own behind a router, where no broadcast arrives.
    pub(super) fn with_outside(machines: usize) -> Cables {
        let mut cables = Cables::new(machines);
        cables.outside = true;
        let (tag, net, router, far) = (&cables.tag, cables.net, cables.router(), cables.far_space());
        ip(&format!("netns add {router}"));
        ip(&format!("netns add {far}"));
        ip(&format!("link add {tag}or type veth peer name {tag}ir"));
        ip(&format!("link set {tag}or master {tag} up"));
        ip(&format!("link set {tag}ir netns {router}"));
        ip(&format!("link add {tag}f type veth peer name {tag}g"));
        ip(&format!("link set {tag}f netns {far}"));
        ip(&format!("link set {tag}g netns {router}"));
        for (space, device, address) in [
            (&router, format!("{tag}ir"), cables.address(253)),
            (&router, format!("{tag}g"), format!("10.78.{net}.1")),
            (&far, format!("{tag}f"), cables.far_address()),
        ] {
            ip(&format!("-n {space} link set lo up"));
            ip(&format!("-n {space} addr add {address}/24 dev {device}"));
            ip(&format!("-n {space} link set {device} up"));
        }
        inside(&router, "echo 1 > /proc/sys/net/ipv4/ip_forward");
        ip(&format!("-n {far} route add default via 10.78.{net}.1"));
        for number in 1..=machines {
            ip(&format!("-n {} route add 10.78.{net}.0/24 via {}", cables.space(number), cables.address(253)));
        }
        cables
    }

    /// Gives every machine an IPv6 address, too.
    pub(super) fn add_ipv6(&self) {
        for number in 1..=self.machines {
            let (space, device) = (self.space(number), format!("{}i{number}", self.tag));
            // Without checking first whether another machine has the address.
            ip(&format!("-n {space} addr add {}/64 dev {device} nodad", self.address_ipv6(number)));
        }
    }

    pub(super) fn address_ipv6(&self, number: usize) -> String {
        format!("fd77:{:x}::{number}", self.net)
    }

    fn router(&self) -> String {
        format!("{}r", self.tag)
    }

    pub(super) fn far_space(&self) -> String {
        format!("{}x", self.tag)
    }

    pub(super) fn far_address(&self) -> String {
        format!("10.78.{}.2", self.net)
    }

    /// From now on, this machine does not receive anything from those.
    pub(super) fn deafen(&self, number: usize, to: &[usize]) {
        for other in to {
            self.rule(&self.space(number), &format!("ip saddr {} drop", self.address(*other)));
        }
    }

    /// From now on, this percentage of the lab's packets to every machine is lost.
    pub(super) fn lose(&self, percent: u32) {
        for number in 1..=self.machines {
            let space = self.space(number);
            for side in ["sport", "dport"] {
                self.rule(
                    &space,
                    &format!("meta l4proto {{ tcp, udp }} th {side} 7300 numgen random mod 100 < {percent} drop"),
                );
            }
        }
    }

    /// From now on, nobody can connect to the machine outside.
    pub(super) fn close_outside(&self) {
        self.rule(&self.far_space(), "tcp dport 7300 drop");
    }

    /// Removes all these rules.
    pub(super) fn mend(&self) {
        for number in 1..=self.machines {
            inside(&self.space(number), "nft flush ruleset");
        }
    }

    fn rule(&self, space: &str, rule: &str) {
        let table = "nft add table inet weir && nft 'add chain inet weir i { type filter hook input priority 0; }'";
        inside(space, &format!("{table} && nft 'add rule inet weir i {rule}'"));
    }

    pub(super) fn space(&self, number: usize) -> String {
        format!("{}n{number}", self.tag)
    }

    pub(super) fn address(&self, number: usize) -> String {
        format!("10.77.{}.{number}", self.net)
    }

    pub(super) fn bridge(&self) -> String {
        self.address(254)
    }

    pub(super) fn broadcast(&self) -> String {
        self.address(255)
    }

    pub(super) fn unplug(&self, number: usize) {
        ip(&format!("link set {}o{number} down", self.tag));
    }

    pub(super) fn plug(&self, number: usize) {
        ip(&format!("link set {}o{number} up", self.tag));
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        let quiet = |words: String| {
            let _ = Command::new("ip").args(words.split_whitespace()).stderr(Stdio::null()).status();
        };
        (1..=self.machines).for_each(|number| quiet(format!("netns del {}", self.space(number))));
        if self.outside {
            quiet(format!("netns del {}", self.router()));
            quiet(format!("netns del {}", self.far_space()));
        }
        quiet(format!("link del {}", self.tag));
    }
}
