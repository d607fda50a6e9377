//! How a world is described and made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{CLIENT_V4, CLIENT_V6, Ns, RESOLVER_V4, RESOLVER_V6, World, ip, orphans};
use crate::lock::Lock;

/// What a world shall contain; names are short and local to it (`c`), made unique on the machine.
#[derive(Debug, Default)]
pub struct WorldBuilder {
    plans: BTreeMap<String, Plan>,
    exclusive: bool,
}

#[derive(Debug, Default)]
struct Plan {
    sysctls: Vec<(String, String)>,
    links: Vec<String>,
    commands: Vec<String>,
}

impl WorldBuilder {
    /// No namespace at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node `h` between the pods `a` and `b`: 10.8.1.2 and 2001:db8:81::2 behind `va`, 10.8.2.2 and 2001:db8:82::2 behind
    /// `vb`. The node has the .1 of each network.
    pub fn node() -> Self {
        let mut world = Self::new().ns("h").ns("a").ns("b");
        for sysctl in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            world = world.sysctl("h", sysctl, "1");
        }
        for (pod, veth, n) in [("a", "va", 1), ("b", "vb", 2)] {
            world = world
                .veth(("h", veth), (pod, "eth0"))
                .address("h", veth, &format!("10.8.{n}.1/24"))
                .address(pod, "eth0", &format!("10.8.{n}.2/24"))
                .address("h", veth, &format!("2001:db8:8{n}::1/64"))
                .address(pod, "eth0", &format!("2001:db8:8{n}::2/64"))
                .ip(pod, &format!("route add default via 10.8.{n}.1"))
                .ip(pod, &format!("route add default via 2001:db8:8{n}::1"));
        }
        world
    }

    /// `c` and `d` on one bridge of the router `r`, `w` behind it, all in both families.
    pub fn standard() -> Self {
        let mut world = Self::new();
        for name in ["c", "d", "w", "r"] {
            world = world.ns(name);
        }
        world = world
            .ip("r", "link add br0 type bridge mcast_snooping 0 forward_delay 0")
            .ip("r", "addr add 10.7.0.1/24 dev br0")
            .ip("r", "addr add 2001:db8:7::1/64 dev br0 nodad")
            .ip("r", "link set br0 up")
            .veth(("r", "vc"), ("c", "eth0"))
            .veth(("r", "vd"), ("d", "eth0"))
            .veth(("r", "vw"), ("w", "eth0"))
            .ip("r", "link set vc master br0")
            .ip("r", "link set vd master br0")
            .address("c", "eth0", &format!("{CLIENT_V4}/24"))
            .address("c", "eth0", &format!("{CLIENT_V6}/64"))
            .address("d", "eth0", &format!("{RESOLVER_V4}/24"))
            .address("d", "eth0", &format!("{RESOLVER_V6}/64"))
            .address("w", "eth0", "10.7.1.2/24")
            .address("w", "eth0", "2001:db8:71::2/64")
            .address("r", "vw", "10.7.1.1/24")
            .address("r", "vw", "2001:db8:71::1/64")
            .sysctl("r", "net/ipv4/ip_forward", "1")
            .sysctl("r", "net/ipv6/conf/all/forwarding", "1")
            .sysctl("w", "net/ipv6/ip_nonlocal_bind", "1");
        for (ns, v4, v6) in [
            ("c", "10.7.0.1", "2001:db8:7::1"),
            ("d", "10.7.0.1", "2001:db8:7::1"),
            ("w", "10.7.1.1", "2001:db8:71::1"),
        ] {
            world = world
                .ip(ns, &format!("route add default via {v4}"))
                .ip(ns, &format!("route add default via {v6}"));
        }
        for net in ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"] {
            world = world.anyip("w", net).ip("r", &format!("route add {net} via 10.7.1.2"));
        }
        for net in ["2001:db8:a::/48", "64:ff9b::/96"] {
            world = world.anyip("w", net).ip("r", &format!("route add {net} via 2001:db8:71::2"));
        }
        world
    }

    /// Adds a namespace, with lo up and no duplicate address detection.
    #[must_use]
    pub fn ns(mut self, name: &str) -> Self {
        let plan = self.plans.entry(name.into()).or_default();
        for device in ["all", "default"] {
            for (key, value) in [("accept_dad", "0"), ("dad_transmits", "0"), ("accept_ra", "0")] {
                plan.sysctls.push((format!("net/ipv6/conf/{device}/{key}"), value.into()));
            }
        }
        plan.sysctls.push(("net/ipv4/ping_group_range".into(), "0 2147483647".into()));
        plan.commands.push("link set lo up".into());
        self
    }

    /// A veth pair: (namespace, device) at both ends, both up.
    #[must_use]
    pub fn veth(mut self, a: (&str, &str), b: (&str, &str)) -> Self {
        let add = format!("link add {} type veth peer name {} netns {{{}}}", a.1, b.1, b.0);
        self.plan(a.0).links.push(add);
        self.ip(a.0, &format!("link set {} up", a.1)).ip(b.0, &format!("link set {} up", b.1))
    }

    /// An address with its prefix length.
    #[must_use]
    pub fn address(self, ns: &str, device: &str, address: &str) -> Self {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        self.ip(ns, &format!("addr add {address} dev {device}{nodad}"))
    }

    /// Makes every address of `net` local to the namespace.
    #[must_use]
    pub fn anyip(self, ns: &str, net: &str) -> Self {
        self.ip(ns, &format!("route add local {net} dev lo"))
    }

    /// Any further `ip` command; `{c}` stands for the full name of namespace `c`.
    #[must_use]
    pub fn ip(mut self, ns: &str, command: &str) -> Self {
        self.plan(ns).commands.push(command.into());
        self
    }

    /// A kernel setting by its path under /proc/sys.
    #[must_use]
    pub fn sysctl(mut self, ns: &str, key: &str, value: &str) -> Self {
        self.plan(ns).sysctls.push((key.into(), value.into()));
        self
    }

    /// Waits until no other world exists, and keeps others away.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Makes it all; panics with the command that failed.
    pub fn build(self) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let lock = if self.exclusive { Lock::exclusive() } else { Lock::shared() };
        orphans::sweep();
        let id = format!("eg-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(&id);
        std::fs::create_dir_all(&dir).expect("temporary directory");
        let full: BTreeMap<&String, String> =
            self.plans.keys().map(|name| (name, format!("{id}-{name}"))).collect();
        ip::batch(None, &full.values().map(|name| format!("netns add {name}")).collect::<Vec<_>>());
        // From here on a panic must clean up, so the world exists before it is furnished.
        let namespaces = full.iter().map(|(k, v)| ((*k).clone(), Arc::new(Ns::open(v)))).collect();
        let world = World { namespaces, dir, _lock: lock };
        let named = |command: &String| {
            full.iter().fold(command.clone(), |text, (k, v)| text.replace(&format!("{{{k}}}"), v))
        };
        let (furnished, named) = (&world, &named);
        for (name, plan) in &self.plans {
            furnished.ns(name).sysctl(&plan.sysctls);
        }
        for (name, plan) in self.plans.iter().filter(|(_, plan)| !plan.links.is_empty()) {
            ip::batch(Some(furnished.ns(name).name()), &plan.links.iter().map(named).collect::<Vec<_>>());
        }
        for (name, plan) in &self.plans {
            let commands: Vec<String> = plan.commands.iter().map(named).collect();
            ip::batch(Some(furnished.ns(name).name()), &commands);
        }
        world
    }

    fn plan(&mut self, ns: &str) -> &mut Plan {
        self.plans.get_mut(ns).unwrap_or_else(|| panic!("namespace {ns} was not added"))
    }
}
