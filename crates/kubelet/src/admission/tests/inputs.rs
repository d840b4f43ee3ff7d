//! Questions about the Node, and who answers them.

use super::super::inputs::inputs;
use crate::admission::NodeView;
use crate::node_shutdown::ShutdownFlag;

#[tokio::test]
async fn a_question_is_answered_once() {
    let (shutdown, goes) = ShutdownFlag::new();
    let (reports, mut reader) = inputs(true, goes);
    let mut node = reports.node.clone().expect("a cluster");
    assert_eq!(reader.news().map(|news| news.answered), Some(0));
    assert_eq!((reader.ask(), reader.ask()), (1, 2));
    assert_eq!(node.asked().await, 2);
    node.know(Some(NodeView::boundless("n")));
    node.answer(2);
    reader.node_changed().await;
    let news = reader.news().expect("news");
    assert_eq!((news.answered, news.node.is_some()), (2, true));
    assert!(tokio::time::timeout(std::time::Duration::ZERO, node.asked()).await.is_err());
    reports.set_conditions(vec!["MemoryPressure".to_owned()]);
    shutdown.set(true);
    assert!(reader.is_shutting_down());
    assert_eq!(reader.conditions(), ["MemoryPressure"]);
}

#[test]
fn without_a_server_nobody_is_asked() {
    let (reports, reader) = inputs(false, ShutdownFlag::new().1);
    assert!(reports.node.is_none());
    assert_eq!((reader.ask(), reader.news()), (0, None));
    assert!(!reader.is_shutting_down() && reader.conditions().is_empty());
}
