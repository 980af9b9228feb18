//! The stages of the mail gate, started in the order that [`crate::pipeline`] describes, and those of their parts that others need.

use super::GateError;
use super::delivering::{Delivering, DeliverySettings};
use crate::alarms::Alarms;
use crate::inbound::{Authenticating, Evaluator, EvaluatorSettings};
use crate::pipeline::Pipeline;
use crate::queue::{Dropped, Queue, QueueList, QueueSelection};
use crate::scan::{Scanning, Setup};
use std::sync::Arc;
use weir_foundation::OperationFuture;
use weir_store::spool::Spool;

/// What the stages are started with, first to last.
pub struct StageSettings {
    /// How received mail is evaluated; without it there is no such stage.
    pub authentication: Option<EvaluatorSettings>,
    /// The scan.
    pub scan: Setup,
    /// Delivery.
    pub delivery: DeliverySettings,
}

/// The stages that run.
pub(super) struct Stages {
    pub(super) pipeline: Pipeline,
    /// Evaluates mail of strangers before it enters the first stage.
    pub(super) evaluator: Option<Arc<Evaluator>>,
    /// Trouble that stages tell the operator of.
    pub(super) alarms: Alarms,
    pub(super) scan: Scanning,
    pub(super) delivery: Delivering,
}

impl Stages {
    /// Each stage is given those that follow, so the last is started first.
    pub(super) fn start(settings: StageSettings, spool: &Spool) -> Result<Stages, GateError> {
        let alarms = Alarms::default();
        let delivery = Delivering::start(settings.delivery, spool)?;
        let pipeline = Pipeline::ending_in(delivery.clone());
        let scan = Scanning::start(settings.scan, pipeline.clone(), alarms.clone())?;
        let mut pipeline = pipeline.preceded_by(scan.clone());
        let evaluator = settings.authentication.map(|settings| Evaluator::new(&settings)).transpose()?.map(Arc::new);
        if let Some(evaluator) = &evaluator {
            pipeline = pipeline.preceded_by(Authenticating::new(Arc::clone(evaluator), spool, pipeline.clone()));
        }
        Ok(Stages { pipeline, evaluator, alarms, scan, delivery })
    }
}

/// What waits in the stages, for people: first what waits for the scan, then what waits for delivery.
impl Queue for Stages {
    fn list<'a>(&'a self, selection: &'a QueueSelection, most: usize) -> OperationFuture<'a, QueueList> {
        Box::pin(async move {
            let mut listed = self.scan.list(selection, most).await?;
            let behind = self.delivery.list(selection, most.saturating_sub(listed.messages.len())).await?;
            listed.total += behind.total;
            listed.messages.extend(behind.messages);
            Ok(listed)
        })
    }

    fn retry<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut found = self.scan.retry(selection).await?;
            found.extend(self.delivery.retry(selection).await?);
            Ok(found)
        })
    }

    fn delete<'a>(&'a self, selection: &'a QueueSelection) -> OperationFuture<'a, Dropped> {
        Box::pin(async move {
            let mut dropped = self.scan.delete(selection).await?;
            // What went from the first is gone, whatever the second says.
            match self.delivery.delete(selection).await {
                Ok(behind) => {
                    dropped.messages.extend(behind.messages);
                    behind.problem.into_iter().for_each(|problem| dropped.note(problem));
                }
                Err(error) => dropped.note(error),
            }
            Ok(dropped)
        })
    }
}
