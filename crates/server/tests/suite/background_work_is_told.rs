//! A benchmark has to know when the work of a server is done: that of a write may begin seconds after the reply.

use ziptier_testing::until;

use crate::support::TestServer;

#[test]
fn until_it_is_done() {
    let server = TestServer::start_store();
    let mut connection = server.connect();
    until("work is left behind a write", || {
        (0..100).for_each(|n| assert_eq!(connection.text(&format!("SET key:{n} value")), "+OK\r\n"));
        server.info(&mut connection).field("background_work") == 1
    });
    server.wait_for(&mut connection, "it is done", |info| info.field("background_work") == 0);
}
