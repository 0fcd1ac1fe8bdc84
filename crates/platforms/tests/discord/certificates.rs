//! A machine without certificates of authorities.

use std::process::Command;

use frontdesk_core::port::platform::ListenEnd;

use super::scene::Scene;

/// Where the certificates are looked for is a matter of the whole process, so this runs in a process of its own.
#[test]
fn a_machine_without_certificates_is_told_of() {
    let nowhere = "/nonexistent/certificates";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "certificates::without_certificates", "--ignored", "--nocapture"]);
    let output = again.env("SSL_CERT_FILE", nowhere).env("SSL_CERT_DIR", nowhere).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the test above"]
async fn without_certificates() {
    let mut scene = Scene::plain().await;
    scene.begin();
    let ListenEnd::Lost(why) = scene.ended().await else { panic!("it must be tried again") };
    assert!(why.contains("CA certificates"), "{why}");
}
