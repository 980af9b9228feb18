//! A rule that gives a role to a group of a directory or an identity provider. It is written as one line: `admin weir-admins`.

use crate::role::Role;
use std::fmt;
use std::str::FromStr;
use weir_settings::text_value;

/// The members of this group have this role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRule {
    /// The role.
    pub role: Role,
    /// The group: the name of its entry in a directory, or its name at the provider.
    pub group: String,
}

text_value!(RoleRule: "\"admin weir-admins\"");

impl FromStr for RoleRule {
    type Err = String;

    fn from_str(text: &str) -> Result<RoleRule, String> {
        let (role, group) = text.split_once(' ').unwrap_or((text, ""));
        let role = match role {
            "admin" => Role::Admin,
            "operator" => Role::Operator,
            _ => return Err(format!("{text:?} is no role: it begins with admin or operator")),
        };
        let group = group.trim().to_owned();
        if group.is_empty() { Err(format!("{text:?} names no group")) } else { Ok(RoleRule { role, group }) }
    }
}

impl fmt::Display for RoleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role.as_str(), self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_is_printed_or_refused() {
        for text in ["admin weir admins", "operator cn=a,dc=b"] {
            assert_eq!(text.parse::<RoleRule>().unwrap().to_string(), text);
        }
        for text in ["", "admin", "admin ", "user staff", "root staff"] {
            assert!(text.parse::<RoleRule>().is_err(), "{text}");
        }
    }
}
