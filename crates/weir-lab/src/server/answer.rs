//! The leader's answers to questions of other machines.

use crate::node::Node;

/// What the leader answers to `why SAMPLE` and `cancel SAMPLE`.
pub(super) async fn answer(node: &Node, question: &str) -> String {
    let Some(leader) = node.leader().filter(|leader| leader.leads()) else {
        return "bye this machine does not lead".into();
    };
    let (word, sample) = question.split_once(' ').unwrap_or_default();
    let answer = match (word, sample.parse()) {
        ("why", Ok(sample)) => leader.why(sample).await,
        ("cancel", Ok(sample)) => Some(if leader.cancel(sample).await { "taken back" } else { "too late" }.to_owned()),
        _ => return "bye that is no question".into(),
    };
    match answer {
        Some(words) => format!("answer {words}"),
        None => "bye nobody leads at the moment".into(),
    }
}
