//! Rules that people make for the scan.

use super::Rank;
use super::input::{Body, By, Name};
use super::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use weir_foundation::console_accounts::Role;
use weir_mail::desk::{Desk, NewRule, RuleView};

pub(super) async fn list(State(desk): State<Desk>) -> Result<Json<Vec<RuleView>>, Problem> {
    Ok(Json(desk.rule_list().await?))
}

pub(super) async fn add(
    State(desk): State<Desk>,
    By(actor): By,
    rank: Option<Extension<Rank>>,
    Body(new): Body<NewRule>,
) -> Result<(StatusCode, Json<RuleView>), Problem> {
    yara_is_for_administrators(new.is_yara(), rank)?;
    Ok((StatusCode::CREATED, Json(desk.rule_add(new, &actor).await?)))
}

pub(super) async fn remove(
    State(desk): State<Desk>,
    By(actor): By,
    rank: Option<Extension<Rank>>,
    Name(rule): Name,
) -> Result<Json<Vec<RuleView>>, Problem> {
    yara_is_for_administrators(desk.rule_show(&rule).await?.is_yara(), rank)?;
    desk.rule_remove(&rule, &actor).await?;
    Ok(Json(desk.rule_list().await?))
}

/// A text of YARA may match all mail that there is.
fn yara_is_for_administrators(is_yara: bool, rank: Option<Extension<Rank>>) -> Result<(), Problem> {
    match rank {
        Some(Extension(Rank(role))) if is_yara && role < Role::Admin => {
            let hint = "an operator blocks single contents, by their hash";
            Err(Problem::refused("rules of YARA are made and removed by administrators", hint))
        }
        _ => Ok(()),
    }
}
