//! Maps a function over many items on as many threads as there are processors; the results keep their order.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// `answer` of each item.
pub(super) fn map<T: Sync, A: Send>(items: &[T], answer: impl Fn(&T) -> A + Sync) -> Vec<A> {
    let next = AtomicUsize::new(0);
    let work = || {
        let taken = std::iter::from_fn(|| {
            let i = next.fetch_add(1, Ordering::Relaxed);
            items.get(i).map(|item| (i, answer(item)))
        });
        taken.collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len()).min(64);
    let mut answers: Vec<(usize, A)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut answers = work();
        answers
            .extend(others.into_iter().flat_map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
        answers
    });
    answers.sort_by_key(|(i, _)| *i);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers_keep_the_order_of_questions() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(super::map(&items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        assert!(super::map(&[] as &[u64], |i| *i).is_empty());
    }
}
