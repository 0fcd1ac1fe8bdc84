//! From one server to several: `frontdesk export` of a running server, `frontdesk import` into Postgres, and back.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::path::Path;
use std::process::{Command, Output};

use frontdesk_testkit::postgres::TestSchema;
use process::{Desk, Socket, person};

fn frontdesk(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frontdesk"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FRONTDESK_")) {
        command.env_remove(name);
    }
    command.args(args).output().unwrap()
}

fn done(args: &[&str]) -> String {
    let output = frontdesk(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = frontdesk(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_moves_to_postgres_and_back_with_all_it_has() {
    let (schema, files) = (TestSchema::create(), tempfile::tempdir().unwrap());
    let file = |name: &str| text(&files.path().join(name));
    let mut alone = Desk::start(&[]).await;
    let account = alone.api.add_gateway("ann", None).await;
    let user = person("ann");
    for id in ["m1", "m2", "m3"] {
        assert_eq!(alone.api.post("c", &user, id, id).await["verdict"]["outcome"], "delivered");
    }
    let (folder, url, one) = (text(alone.folder()), schema.url(), file("one"));
    assert!(done(&["export", &one, "--data-dir", &folder]).starts_with("exported "), "while it runs");
    assert!(refused(&["export", &one, "--data-dir", &folder]).contains("File exists"));
    assert!(refused(&["import", &one, "--data-dir", &folder]).contains("in use by another Frontdesk server"));
    assert!(refused(&["import", &one, "--data-dir", &file("new")]).contains("has no master.key"));
    alone.kill().await;

    done(&["import", &one, "--store", &url]);
    assert!(refused(&["import", &one, "--store", &url]).contains("the database is not empty"));
    let key = |name: &str| text(&alone.folder().join(name));
    let (master, admin) = (key("master.key"), key("admin.token"));
    let shared = [
        ("STORE_URL", url.as_str()),
        ("KEYS_MASTER_FILE", &master),
        ("KEYS_ADMIN_TOKEN_FILE", &admin),
        ("PUBLIC_URL", "http://desk.example"),
    ];
    let mut desk = Desk::start(&shared).await;
    let mut socket = Socket::dial(&desk.api.url, &account).await.unwrap();
    assert_eq!(socket.take(3).await, ["m1", "m2", "m3"], "the secret is known and the mail is owed: {}", desk.log());
    drop(socket);
    let two = file("two");
    assert!(refused(&["import", &two, "--store", &url]).contains("No such file"));
    done(&["export", &two, "--store", &url]);
    desk.kill().await;

    let back = files.path().join("back");
    std::fs::create_dir(&back).unwrap();
    std::fs::write(back.join("master.key"), "00".repeat(32)).unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(back.join("master.key"), owner_only).unwrap();
    assert!(refused(&["import", &two, "--data-dir", &text(&back)]).contains("another master key"));
    std::fs::copy(&master, back.join("master.key")).unwrap();
    done(&["import", &two, "--data-dir", &text(&back)]);
    assert!(done(&["export", &file("three"), "--data-dir", &text(&back)]).starts_with("exported "));
}
