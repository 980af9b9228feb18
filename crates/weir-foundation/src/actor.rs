//! The actor of a request: the person or program that asks for something, as the audit trail names it.

/// Who is asking: `cli:root`, `console:ann`, `token:backup`, or `weir` itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(Box<str>);

impl Actor {
    /// Makes an actor from a name. Control characters are dropped, and a name that is too long is cut.
    pub fn new(name: &str) -> Actor {
        let name: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
        Actor(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_one_short_line() {
        assert_eq!(Actor::new("cli:ro\not\u{1b}").as_str(), "cli:root");
        assert_eq!(Actor::new(&"x".repeat(1000)).as_str().len(), 100);
    }
}
