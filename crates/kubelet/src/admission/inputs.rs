//! What others tell admission: the Node, what the node is short of, that the machine
//! goes. Each has one writer; the task that judges reads, and asks for the Node.

use std::sync::Arc;

use tokio::sync::watch;

use super::NodeView;
use crate::node_shutdown::ShutdownReader;

/// What the API server says of the Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeNews {
    /// The Node; `None` while it is not known, or there is none.
    pub node: Option<Arc<NodeView>>,
    /// The number of the last question that the server has answered; what it answered
    /// is the Node above.
    pub answered: u64,
}

/// Reads. Each clone notices changes by itself.
#[derive(Debug, Clone)]
pub struct Inputs {
    node: Option<(watch::Receiver<NodeNews>, Arc<watch::Sender<u64>>)>,
    conditions: watch::Receiver<Vec<String>>,
    shutdown: ShutdownReader,
}

/// Tells. Cheap to clone, for whoever is the one writer of a fact.
#[derive(Debug, Clone)]
pub struct Reports {
    /// The Node; `None` without an API server.
    pub node: Option<NodeNewsWriter>,
    conditions: watch::Sender<Vec<String>>,
}

/// Tells of the Node, and hears who asks.
#[derive(Debug, Clone)]
pub struct NodeNewsWriter {
    news: watch::Sender<NodeNews>,
    asks: watch::Receiver<u64>,
}

/// Both ends, of a node that has an API server or not.
pub fn inputs(in_cluster: bool, shutdown: ShutdownReader) -> (Reports, Inputs) {
    let (conditions, of_conditions) = watch::channel(Vec::new());
    let (mut reports, mut inputs) = (
        Reports { node: None, conditions },
        Inputs { node: None, conditions: of_conditions, shutdown },
    );
    if in_cluster {
        let (news, of_news) = watch::channel(NodeNews::default());
        let (asking, asks) = watch::channel(0);
        reports.node = Some(NodeNewsWriter { news, asks });
        inputs.node = Some((of_news, Arc::new(asking)));
    }
    (reports, inputs)
}

impl Inputs {
    /// What the API server says of the Node; `None` without a server.
    pub fn news(&self) -> Option<NodeNews> {
        self.node.as_ref().map(|(news, _)| news.borrow().clone())
    }

    /// Asks the server for the Node; returns the question's number. Who asks while a
    /// question is open that nobody has taken up shares it.
    pub fn ask(&self) -> u64 {
        let Some((_, asking)) = &self.node else { return 0 };
        let mut number = 0;
        asking.send_modify(|ask| {
            *ask += 1;
            number = *ask;
        });
        number
    }

    /// Waits for other news of the Node than those last waited for.
    pub async fn node_changed(&mut self) {
        let changed = match &mut self.node {
            Some((news, _)) => news.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }

    /// What the node is short of, as the conditions are called.
    pub fn conditions(&self) -> Vec<String> {
        self.conditions.borrow().clone()
    }

    /// The machine is about to go.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.is_shutting_down()
    }
}

impl Reports {
    /// The node is short of these, and of nothing else.
    pub fn set_conditions(&self, conditions: Vec<String>) {
        self.conditions.send_replace(conditions);
    }
}

impl NodeNewsWriter {
    /// The Node as the server has it; `None` if it has none.
    pub fn know(&self, node: Option<NodeView>) {
        self.news.send_if_modified(|news| {
            let changed = news.node.as_deref() != node.as_ref();
            if changed {
                news.node = node.map(Arc::new);
            }
            changed
        });
    }

    /// The server has answered all questions up to this one.
    pub fn answer(&self, ask: u64) {
        self.news.send_modify(|news| news.answered = news.answered.max(ask));
    }

    /// Waits for a question that is not answered; returns its number.
    pub async fn asked(&mut self) -> u64 {
        let answered = self.news.borrow().answered;
        let asked = self.asks.wait_for(|ask| *ask > answered).await.map(|ask| *ask);
        match asked {
            Ok(ask) => ask,
            // Nobody is left who could ask.
            Err(_) => std::future::pending().await,
        }
    }
}
