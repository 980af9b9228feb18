//! A router that can be replaced while it serves. When a gate starts or stops, the API and the pages are built again for the gates that run.

use axum::Router;
use axum::extract::Request;
use std::sync::{Arc, PoisonError, RwLock};
use tower::ServiceExt;

/// The router in use. All clones share it.
#[derive(Clone)]
pub struct CurrentRouter(Arc<RwLock<Router>>);

impl CurrentRouter {
    /// Starts with this router.
    pub fn new(router: Router) -> CurrentRouter {
        CurrentRouter(Arc::new(RwLock::new(router)))
    }

    /// Uses this one from the next request on.
    pub fn replace(&self, router: Router) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = router;
    }

    /// What a listener serves: each request goes to the router in use at that moment.
    pub fn service(&self) -> Router {
        let current = self.clone();
        Router::new().fallback(move |request: Request| {
            let router = current.0.read().unwrap_or_else(PoisonError::into_inner).clone();
            async move { router.oneshot(request).await }
        })
    }
}
