//! What the handlers work with, each taken out of [`Gates`].

use crate::site::Gates;
use axum::extract::FromRef;
use weir_foundation::api_tokens::ApiTokens;
use weir_foundation::audit::AuditTrail;
use weir_foundation::backup::Backup;
use weir_foundation::console_accounts::ConsoleAccounts;
use weir_foundation::second_factor::SecondFactor;
use weir_foundation::supervision::GateStates;
use weir_mail::desk::Desk;

impl FromRef<Gates> for ConsoleAccounts {
    fn from_ref(gates: &Gates) -> ConsoleAccounts {
        gates.administration.accounts.clone()
    }
}

impl FromRef<Gates> for SecondFactor {
    fn from_ref(gates: &Gates) -> SecondFactor {
        gates.administration.second_factor.clone()
    }
}

impl FromRef<Gates> for ApiTokens {
    fn from_ref(gates: &Gates) -> ApiTokens {
        gates.administration.tokens.clone()
    }
}

impl FromRef<Gates> for AuditTrail {
    fn from_ref(gates: &Gates) -> AuditTrail {
        gates.administration.audit.clone()
    }
}

impl FromRef<Gates> for Backup {
    fn from_ref(gates: &Gates) -> Backup {
        gates.administration.backup.clone()
    }
}

impl FromRef<Gates> for GateStates {
    fn from_ref(gates: &Gates) -> GateStates {
        gates.states.clone()
    }
}

impl FromRef<Gates> for Desk {
    fn from_ref(gates: &Gates) -> Desk {
        gates.desk.clone()
    }
}
