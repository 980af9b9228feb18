//! Room in a list of bounded length for what comes late: a flood of one kind takes no room from the others.

use std::collections::HashMap;
use weir_guest::behaviour::LISTED_MAX;

/// Adds an entry; whether all that was added so far is still listed. When the list is full, an entry of a rare kind takes the place of the
/// last one of the most frequent kind. Kinds are coarse first, and finer ones behind.
pub(crate) fn add<T>(list: &mut Vec<T>, entry: T, kinds: &[fn(&T) -> &str]) -> bool {
    if list.len() < LISTED_MAX {
        list.push(entry);
        return true;
    }
    for kind in kinds {
        // In a flood this is the usual case, and it should cost little.
        let own = kind(&entry);
        if list.iter().filter(|listed| kind(listed) == own).count() > list.len() / 2 {
            continue;
        }
        let mut counts: HashMap<&str, usize> = HashMap::new();
        list.iter().for_each(|listed| *counts.entry(kind(listed)).or_default() += 1);
        let rare = counts.get(own).copied().unwrap_or(0);
        let Some((frequent, count)) = counts.into_iter().max_by_key(|(_, count)| *count) else { continue };
        // Each exchange makes the list more even, so there is an end to them.
        if rare + 1 < count
            && let Some(last) = list.iter().rposition(|listed| kind(listed) == frequent)
        {
            list.remove(last);
            list.push(entry);
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_takes_no_room_from_others() {
        let kinds: &[fn(&String) -> &str] = &[|entry| &entry[..1], |entry| &entry[..2]];
        let mut list = Vec::new();
        let flood: Vec<bool> = (0..2000).map(|n| add(&mut list, format!("aa{n}"), kinds)).collect();
        assert_eq!(flood.iter().filter(|whole| **whole).count(), LISTED_MAX);
        assert!(!add(&mut list, "b1".into(), kinds), "one of the flood is no longer listed");
        add(&mut list, "ab1".into(), kinds);
        for number in 0..2000 {
            add(&mut list, format!("ac{number}"), kinds);
        }
        assert_eq!(list.len(), LISTED_MAX);
        let count = |begin: &str| list.iter().filter(|entry| entry.starts_with(begin)).count();
        assert_eq!((count("b"), count("ab")), (1, 1));
        assert!(count("ac") > LISTED_MAX / 3 && count("aa") > LISTED_MAX / 3);
    }
}
