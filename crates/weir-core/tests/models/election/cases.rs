//! The rules one by one, each in a few steps.

use super::model::{Model, PEERS, address, origin};
use super::op::{Lie, Op};
use core::time::Duration;
use weir_core::election::*;

/// The node as leader of two others, in a lab where nothing is lost.
fn acting_leader() -> Model {
    let mut model = Model::new(Role::Eligible);
    model.run(&[Op::Wait { ms: 300 }, Op::Wait { ms: 300 }, Op::Wait { ms: 300 }]).unwrap();
    model.say(2, Message::Ack { round: model.node.round() }, Lie::None).unwrap();
    model.run(&[Op::Answer]).unwrap();
    assert_eq!(model.node.standing(model.now), Standing::Acting(Epoch(1)));
    model
}

#[test]
fn a_quiet_network_elects_in_three_phases_and_the_lease_makes_it_act() {
    let model = acting_leader();
    assert_eq!(model.node.local_nodes().collect::<Vec<_>>(), [NodeId(5)]);
    assert_eq!(model.node.highest_epoch(), Epoch(1));
}

#[test]
fn a_node_that_misses_n_replies_leaves_the_list() {
    let mut model = acting_leader();
    for _ in 0..3 {
        model.wait(Duration::from_millis(500)).unwrap();
        model.run(&[Op::Answer]).unwrap();
        assert_eq!(model.node.local_nodes().count(), 1);
        model.say(2, Message::Present { following: true, epoch: Some(Epoch(1)) }, Lie::None).unwrap();
    }
    model.say(3, Message::LeaderRequest { round: Round { boot: Boot(1), number: 9 } }, Lie::None).unwrap();
    assert_eq!(model.node.local_nodes().count(), 2, "a requester that it aborted is on the list");
    for _ in 0..4 {
        model.wait(Duration::from_millis(500)).unwrap();
        model.run(&[Op::Answer]).unwrap();
    }
    assert_eq!(model.node.local_nodes().count(), 0);
}

#[test]
fn a_leader_that_hears_nobody_lets_go_and_a_voice_brings_it_back() {
    let mut model = acting_leader();
    for _ in 0..8 {
        model.run(&[Op::Wait { ms: 250 }, Op::Answer]).unwrap();
    }
    assert_eq!(model.node.aside(), Some(Aside::HearsNobody));
    assert!(model.row.expires_at <= model.now, "the lease was released");
    model.say(4, Message::Present { following: false, epoch: None }, Lie::None).unwrap();
    assert_eq!(model.node.standing(model.now), Standing::Candidate(Phase::Request));
}

#[test]
fn a_machine_that_is_refused_is_no_voice_and_one_honest_voice_is_enough() {
    for honest in [true, false] {
        let mut model = acting_leader();
        for number in 1..=20 {
            model.run(&[Op::Wait { ms: 250 }, Op::Answer]).unwrap();
            let round = Round { boot: Boot(1), number };
            model.say(3, Message::LeaderRequest { round }, Lie::Priority).unwrap();
            if honest {
                model.say(2, Message::Present { following: true, epoch: Some(Epoch(1)) }, Lie::None).unwrap();
            }
        }
        let acts = model.node.standing(model.now) == Standing::Acting(Epoch(1));
        let aside = (!honest).then_some(Aside::HearsNobody);
        assert_eq!((acts, model.node.aside()), (honest, aside));
    }
}

#[test]
fn a_dead_database_makes_it_stand_aside_and_resign() {
    let mut model = acting_leader();
    for _ in 0..25 {
        model.wait(Duration::from_millis(100)).unwrap();
        model.orders.clear();
        model.say(2, Message::Present { following: true, epoch: Some(Epoch(1)) }, Lie::None).unwrap();
    }
    assert_eq!(model.node.aside(), Some(Aside::NoDatabase));
    model.wait(Duration::from_millis(1_100)).unwrap();
    assert!(model.orders.contains(&LeaseOrder::Probe));
    model.run(&[Op::Answer]).unwrap();
    assert_eq!(model.node.aside(), None);
}

#[test]
fn a_leader_whose_priority_is_made_worse_releases_names_the_best_and_stands_again() {
    let mut model = acting_leader();
    // Still better than the one that answers it: it goes on, and says so at once.
    model.node.set_priority(model.now, Priority(0));
    let outputs: Vec<Output> = std::iter::from_fn(|| model.node.poll_output()).collect();
    assert!(matches!(outputs[..], [Output::Broadcast(Message::LeaderAlive { .. })]), "{outputs:?}");
    assert_eq!(model.node.standing(model.now), Standing::Acting(Epoch(1)));
    model.node.set_priority(model.now, Priority(9));
    assert_eq!(model.node.standing(model.now), Standing::Leaving);
    assert_eq!(model.drain().unwrap(), []);
    let order = model.orders.pop_back().unwrap();
    assert_eq!(order, LeaseOrder::Release { epoch: Epoch(1) });
    let answer = model.execute(order).unwrap();
    model.answer(order, answer);
    let resigned = Message::Resigned { epoch: Some(Epoch(1)), successor: Some(NodeId(5)) };
    assert_eq!(model.drain().unwrap(), [(address(5), resigned)]);
    assert_eq!(model.node.standing(model.now), Standing::Candidate(Phase::Request));
    assert_eq!(model.node.claim().priority, Priority(9));
}

#[test]
fn a_resignation_releases_first_and_names_the_best_local_node() {
    let mut model = acting_leader();
    model.node.resign(model.now);
    assert_eq!(model.node.standing(model.now), Standing::Leaving);
    assert_eq!(model.drain().unwrap(), []);
    let order = model.orders.pop_front().unwrap();
    let answer = model.execute(order).unwrap();
    model.answer(order, answer);
    let sent = model.drain().unwrap();
    let resigned = Message::Resigned { epoch: Some(Epoch(1)), successor: Some(NodeId(5)) };
    assert_eq!(sent, [(address(5), resigned)]);
}

#[test]
fn of_two_clones_the_later_life_goes_on() {
    let mut model = acting_leader();
    let clone = Origin { boot: Boot(2), address: address(77), ..*model.node.me() };
    let claim = model.node.claim();
    let message = Message::LeaderAlive { round: model.node.round(), epoch: Some(Epoch(9)) };
    let hint = Frame { from: clone, via: Channel::Datagram { sequence: 1 }, claim, message };
    assert_eq!(model.node.on_message(model.now, &hint), Err(MessageRefusal::Clone));
    assert!(model.node.acting(model.now).is_some(), "a datagram is only a hint");
    assert_eq!(model.drain().unwrap().len(), 1, "it knocks");
    let knock = Frame { via: Channel::Stream, message: Message::Present { following: false, epoch: None }, ..hint };
    assert_eq!(model.node.on_message(model.now, &knock), Err(MessageRefusal::Clone));
    assert_eq!(model.node.standing(model.now), Standing::Leaving);
    let mut earlier = acting_leader();
    let from = Origin { boot: Boot(0), ..clone };
    assert_eq!(earlier.node.on_message(earlier.now, &Frame { from, ..knock }), Err(MessageRefusal::Clone));
    assert!(earlier.node.acting(earlier.now).is_some());
}

#[test]
fn a_datagram_is_not_taken_again_when_a_stream_shows_which_of_two_lives_is_true() {
    let mut model = Model::new(Role::Eligible);
    let said = |boot: u64, via: Channel| {
        let frame = of_best(via, Message::LeaderRequest { round: Round { boot: Boot(boot), number: 1 } });
        Frame { from: Origin { boot: Boot(boot), ..frame.from }, ..frame }
    };
    let (hint, of_a_clone) = (said(5, Channel::Datagram { sequence: 10 }), said(9, Channel::Datagram { sequence: 1 }));
    let shown = Frame { via: Channel::Stream, message: Message::Present { following: false, epoch: None }, ..hint };
    for frame in [hint, of_a_clone, shown] {
        assert_eq!(model.node.on_message(model.now, &frame), Ok(()));
    }
    assert_eq!(model.node.on_message(model.now, &hint), Err(MessageRefusal::Replayed));
    assert_eq!(model.node.on_message(model.now, &of_a_clone), Err(MessageRefusal::LaterLife));
    // And when the clone is shown after all, and so is another.
    let third = Frame { from: Origin { boot: Boot(12), ..hint.from }, ..shown };
    assert_eq!(model.node.on_message(model.now, &third), Ok(()));
    model.now += Settings::default().silence();
    let clone_shown = Frame { from: of_a_clone.from, ..shown };
    assert_eq!(model.node.on_message(model.now, &clone_shown), Ok(()));
    assert_eq!(model.node.on_message(model.now, &of_a_clone), Err(MessageRefusal::Replayed));
}

/// Another machine has the name of one that was known.
#[test]
fn a_name_that_was_given_to_another_machine_is_heard_again_and_only_a_stream_gives_it() {
    let mut model = acting_leader();
    let (role, priority, index, last) = PEERS[2];
    let claim = Claim { priority: Priority(priority), index: ProcessingIndex(index), stands: true };
    let old = Origin { boot: Boot(7 << 32), ..origin(role, priority, last) };
    let new = Origin { key: KeyId([66; 32]), address: address(66), boot: Boot(1 << 32), ..old };
    let present = Message::Present { following: true, epoch: Some(Epoch(1)) };
    let request = Message::LeaderRequest { round: Round { boot: new.boot, number: 1 } };
    let stream = |from| Frame { from, via: Channel::Stream, claim, message: present };
    let datagram = |from, sequence| Frame { from, via: Channel::Datagram { sequence }, claim, message: request };
    assert_eq!(model.node.on_message(model.now, &stream(old)), Ok(()));
    assert_eq!(model.node.on_message(model.now, &datagram(old, 1)), Ok(()));
    model.drain().unwrap();

    let before = model.node.clone();
    assert_eq!(model.node.on_message(model.now, &datagram(new, 1)), Err(MessageRefusal::OtherKey));
    assert!(model.node == before, "a datagram shows no key");
    for _ in 0..8 {
        model.run(&[Op::Wait { ms: 250 }, Op::Answer]).unwrap();
        assert_eq!(model.node.on_message(model.now, &stream(new)), Ok(()));
        let answers = model.drain().unwrap();
        assert!(!answers.is_empty() && answers.iter().all(|(to, _)| *to == address(66)), "{answers:?}");
    }
    assert_eq!(model.node.standing(model.now), Standing::Acting(Epoch(1)), "it is a voice");
    assert_eq!(model.node.local_nodes().collect::<Vec<_>>(), [old.id]);
    assert_eq!(model.node.on_message(model.now, &datagram(new, 1)), Ok(()));
    // What the one before has broadcast, or a copy of it does, is no word of the new one.
    for (boot, refusal) in [
        (old.boot, MessageRefusal::LaterLife),
        (new.boot, MessageRefusal::Replayed),
        (Boot(1), MessageRefusal::EarlierLife),
    ] {
        let again = datagram(Origin { boot, ..new }, 1);
        assert_eq!(model.node.on_message(model.now, &again), Err(refusal));
    }
}

/// A frame of the best peer.
fn of_best(via: Channel, message: Message) -> Frame {
    let (role, priority, index, last) = PEERS[0];
    let claim = Claim { priority: Priority(priority), index: ProcessingIndex(index), stands: true };
    Frame { from: origin(role, priority, last), via, claim, message }
}

const ROUND: Round = Round { boot: Boot(1), number: 1 };

#[test]
fn beats_without_a_stream_do_not_keep_a_leader() {
    let alive = Message::LeaderAlive { round: ROUND, epoch: None };
    for streams in [true, false] {
        let mut model = Model::new(Role::Eligible);
        let victory = of_best(Channel::Stream, Message::Victory { round: ROUND, epoch: None });
        model.node.on_message(model.now, &victory).unwrap();
        for sequence in 1..=40 {
            model.wait(Duration::from_millis(100)).unwrap();
            let beat = of_best(Channel::Datagram { sequence }, alive);
            model.node.on_message(model.now, &beat).unwrap();
            let answers = model.drain().unwrap();
            if streams {
                assert!(answers.iter().any(|(to, m)| *to == address(9) && matches!(m, Message::Present { .. })));
                model.node.on_message(model.now, &of_best(Channel::Stream, alive)).unwrap();
                assert_eq!(model.drain().unwrap(), [], "an answer to an answer would never end");
            }
        }
        let follows = model.node.standing(model.now) == Standing::Following(NodeId(9));
        assert_eq!(follows, streams, "{:?}", model.node.standing(model.now));
    }
}

#[test]
fn a_leader_shows_itself_to_who_follows_it() {
    let mut model = acting_leader();
    let (role, priority, index, last) = PEERS[2];
    let claim = Claim { priority: Priority(priority), index: ProcessingIndex(index), stands: true };
    let message = Message::Present { following: true, epoch: Some(Epoch(1)) };
    let present = Frame { from: origin(role, priority, last), via: Channel::Stream, claim, message };
    model.node.on_message(model.now, &present).unwrap();
    let alive = Message::LeaderAlive { round: model.node.round(), epoch: Some(Epoch(1)) };
    assert_eq!(model.drain().unwrap(), [(address(last), alive)]);
}

/// Both were started again, and others abort the one that stands before it asks over a stream: nobody else would open one.
#[test]
fn who_hears_of_a_later_life_shows_itself() {
    let mut model = Model::new(Role::Eligible);
    let stream = of_best(Channel::Stream, Message::Victory { round: ROUND, epoch: None });
    model.node.on_message(model.now, &stream).unwrap();
    model.drain().unwrap();
    let mut beat = of_best(Channel::Datagram { sequence: 1 }, Message::LeaderAlive { round: ROUND, epoch: None });
    beat.from.boot = Boot(beat.from.boot.0 + 1);
    assert_eq!(model.node.on_message(model.now, &beat), Err(MessageRefusal::LaterLife));
    let knock = Message::Present { following: false, epoch: None };
    assert_eq!(model.drain().unwrap(), [(beat.from.address, knock)]);
}

#[test]
fn a_datagram_neither_mutes_a_node_nor_moves_it() {
    let request = Message::LeaderRequest { round: ROUND };
    let later = |sequence| {
        let mut frame = of_best(Channel::Datagram { sequence }, request);
        frame.from.boot = Boot(u64::MAX);
        frame
    };
    let stream = of_best(Channel::Stream, Message::Victory { round: ROUND, epoch: None });
    let mut model = Model::new(Role::Eligible);
    model.node.on_message(model.now, &later(1)).unwrap();
    model.node.on_message(model.now, &stream).expect("what a datagram said first does not bind");
    assert_eq!(model.node.on_message(model.now, &later(2)), Err(MessageRefusal::LaterLife));
    model.node.on_message(model.now, &stream).expect("the datagram has changed nothing");
    model.drain().unwrap();
    let mut beat = of_best(Channel::Datagram { sequence: 1 }, Message::LeaderAlive { round: ROUND, epoch: None });
    beat.from.address = address(66);
    model.node.on_message(model.now, &beat).unwrap();
    let answers = model.drain().unwrap();
    assert!(!answers.is_empty() && answers.iter().all(|(to, _)| *to == address(9)), "{answers:?}");
    let mut restarted = stream;
    restarted.from.boot = Boot(2);
    model.node.on_message(model.now, &restarted).expect("a stream shows that it was restarted");
}
