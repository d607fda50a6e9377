//! L-A05: another tool's programs on the cgroup that `egret run` starts in.

use egret_tests::exec::Cmd;
use egret_tests::foreign::{Mode, Neighbour};
use egret_tests::lab::Lab;
use egret_tests::policy::Cnp;

const DROPPED: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 66);

fn policy() -> String {
    Cnp::new().cidr("192.0.2.0/24", &["443/TCP"]).text()
}

#[test]
fn l_a05_a_neighbour_without_egret() {
    let Some(lab) = Lab::start() else { return };
    let neighbour = Neighbour::start("control", Mode::Multi, DROPPED);
    let mut probe = egret_tests::probe::Session::start(&lab.bare().cgroup(neighbour.path()));
    probe.tcp("192.0.2.66:443").denied();
    probe.tcp("192.0.2.67:443").allowed();
    assert!(neighbour.is_attached());
}

#[test]
fn l_a05_both_filters_work_and_the_neighbour_stays() {
    let Some(lab) = Lab::start() else { return };
    let neighbour = Neighbour::start("multi", Mode::Multi, DROPPED);
    let egret = lab.egret().place(|place| place.cgroup(neighbour.path())).policy(&policy());
    let mut probe = egret.session();
    probe.tcp("192.0.2.66:443").denied();
    probe.tcp("192.0.2.67:443").allowed();
    probe.tcp("203.0.113.1:443").refused();
    let run = probe.finish();
    assert!(run.outcome.success(), "{:?}", run.outcome);
    assert_eq!(run.report.denied().len(), 1, "what the neighbour drops is not ours: {:?}", run.report);
    assert!(neighbour.is_attached());
}

#[test]
fn l_a05_an_exclusive_neighbour_is_reported_and_left_alone() {
    let Some(lab) = Lab::start() else { return };
    for (name, mode) in [("exclusive", Mode::Exclusive), ("override", Mode::Override)] {
        let neighbour = Neighbour::start(name, mode, DROPPED);
        let egret = lab.egret().place(|place| place.cgroup(neighbour.path())).policy(&policy());
        let run = egret.run(&Cmd::new(["echo", "started"]));
        assert_eq!(run.outcome.code, Some(69), "{name}: {:?}", run.outcome);
        assert!(!run.outcome.stdout.contains("started"), "{name}");
        assert!(run.outcome.stderr.starts_with("egret:"), "{name}: {:?}", run.outcome);
        assert!(neighbour.is_attached(), "{name}");
    }
}
