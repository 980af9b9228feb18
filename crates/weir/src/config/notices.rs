//! `[notices]`: who is told when mail is held or a user is stopped.

use super::reader::Section;
use weir_core::address::canonical;
use weir_mail::notices::Webhook;

#[derive(Debug, Clone)]
pub(crate) struct Notices {
    pub(crate) admin: String,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) link: String,
}

impl Notices {
    pub(super) fn read(s: &mut Section<'_, '_>) -> Notices {
        let admin = s.text(
            "admin",
            "",
            (
                "an address",
                "The administrator, who gets every notice besides the user's contact address; empty for nobody",
            ),
            |text| {
                if text.is_empty() {
                    Ok(())
                } else {
                    canonical(text).map(drop).map_err(|why| format!("{text:?} {why}"))
                }
            },
        );
        let webhook = s.text(
            "webhook",
            "",
            ("an http:// or https:// URL", "Called with a JSON document at every notice; empty for none"),
            |text| if text.is_empty() { Ok(()) } else { Webhook::parse(text).map(drop) },
        );
        let link = s.text(
            "link",
            "",
            ("a URL", "Where a person can look at held mail, named in notices; empty for none"),
            |_| Ok(()),
        );
        Notices { admin, webhook: Webhook::parse(&webhook).ok(), link }
    }
}
