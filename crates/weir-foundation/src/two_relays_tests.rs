//! Two relays with the same records change the accounts and tokens of the site at the same time: no change is lost, and none comes back.

use crate::api_tokens::{ApiTokens, NewToken, Scope};
use crate::console_accounts::{ConsoleAccounts, NewAccount, Role};
use crate::passwords::Passwords;
use crate::second_factor::SecondFactor;
use crate::totp::code_of;
use crate::{Actor, Foundation};
use std::collections::BTreeSet;
use weir_peers::Postgres;
use weir_store::folder::DataFolder;

/// Two relays on one database. With SQLite, which has only one relay, they are two parts of one process.
struct TwoRelays {
    relays: [Foundation; 2],
    _home: tempfile::TempDir,
}

impl TwoRelays {
    async fn on_sqlite() -> TwoRelays {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(home.path().join("data")).unwrap();
        let relay = Foundation::lay(folder, None, "one.example").await.unwrap();
        TwoRelays { relays: [relay.clone(), relay], _home: home }
    }

    async fn on_postgres() -> TwoRelays {
        let (home, url) = (tempfile::tempdir().unwrap(), Postgres::shared().database());
        let lay = async |name: &str| {
            let folder = DataFolder::open(home.path().join(name)).unwrap();
            Foundation::lay(folder, Some(&url), name).await.unwrap()
        };
        TwoRelays { relays: [lay("one.example").await, lay("two.example").await], _home: home }
    }

    fn tokens(&self) -> [ApiTokens; 2] {
        self.relays.each_ref().map(ApiTokens::new)
    }

    fn accounts(&self) -> [ConsoleAccounts; 2] {
        self.relays.each_ref().map(|relay| ConsoleAccounts::new(relay, Passwords::new(2, [7; 32]).unwrap()))
    }
}

macro_rules! on_both {
    ($($name:ident => $test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$test(super::TwoRelays::on_sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$test(super::TwoRelays::on_postgres().await).await;
            })*
        }
    };
}

on_both! {
    no_token_is_lost => tokens,
    a_revoked_token_stays_revoked_while_it_is_used => revoked,
    no_account_is_lost => accounts,
    a_code_is_good_on_one_relay_only => codes,
}

fn actor() -> Actor {
    Actor::new("cli:root")
}

fn token(name: &str) -> NewToken {
    NewToken { name: name.to_owned(), scope: Scope::Read, days: 0 }
}

async fn tokens(site: TwoRelays) {
    const EACH: usize = 50;
    let making = site.tokens().into_iter().zip(["one", "two"]).map(|(tokens, relay)| {
        tokio::spawn(async move {
            for number in 0..EACH {
                tokens.add(token(&format!("{relay}-{number}")), &actor()).await.unwrap();
            }
        })
    });
    for made in making.collect::<Vec<_>>() {
        made.await.unwrap();
    }
    for tokens in site.tokens() {
        assert_eq!(tokens.list().await.unwrap().len(), 2 * EACH);
    }
}

async fn revoked(site: TwoRelays) {
    let [here, there] = site.tokens();
    for number in 0..40 {
        let name = format!("t{number}");
        let made = here.add(token(&name), &actor()).await.unwrap().token;
        let (using, secret) = (here.clone(), made.clone());
        let used = tokio::spawn(async move { using.known(&secret).await.unwrap() });
        there.revoke(&name, &actor()).await.unwrap();
        let _known_or_not = used.await.unwrap();
        assert_eq!(here.known(&made).await.unwrap(), None, "{name} was revoked");
        assert!(there.list().await.unwrap().is_empty(), "{name} is back");
    }
}

async fn accounts(site: TwoRelays) {
    const EACH: usize = 6;
    let making = site.accounts().into_iter().zip(["one", "two"]).map(|(accounts, relay)| {
        tokio::spawn(async move {
            for number in 0..EACH {
                let (name, password) = (format!("{relay}-{number}"), "a long password".to_owned());
                accounts.add(NewAccount { name, role: Role::Admin, password }, &actor()).await.unwrap();
            }
        })
    });
    for made in making.collect::<Vec<_>>() {
        made.await.unwrap();
    }
    let [here, there] = site.accounts();
    let names: Vec<String> = there.list().await.unwrap().into_iter().map(|account| account.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 2 * EACH, "{names:?}");
    // Whoever removes them: one administrator stays.
    let removing = [here, there].into_iter().map(|accounts| {
        let names = names.clone();
        tokio::spawn(async move {
            for name in names {
                let _done_by_one_of_the_two = accounts.remove(&name, &actor()).await;
            }
        })
    });
    for removed in removing.collect::<Vec<_>>() {
        removed.await.unwrap();
    }
    assert_eq!(site.accounts()[0].list().await.unwrap().len(), 1, "the last administrator stays");
}

async fn codes(site: TwoRelays) {
    let accounts = site.accounts();
    let new = NewAccount { name: "ann".into(), role: Role::Admin, password: "a long password".into() };
    accounts[0].add(new, &actor()).await.unwrap();
    let [here, there] = accounts.map(SecondFactor::new);
    let secret = here.begin("ann").await.unwrap().secret;
    let now_s = (site.relays[0].clock)().0 / 1_000_000_000;
    let recovery = there.confirm("ann", &code_of(&secret, now_s), &actor()).await.unwrap();
    for code in recovery {
        let (entering, same) = (here.clone(), code.clone());
        let entered = tokio::spawn(async move { entering.takes("ann", &same).await.unwrap() });
        let taken = [there.takes("ann", &code).await.unwrap(), entered.await.unwrap()];
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "a code is good once: {taken:?}");
    }
}
