//! The packages of the SDKs.

use axum::body::Body;

use super::world::World;

#[tokio::test]
async fn the_packages_of_the_sdks_need_no_key() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("python.tar.gz"), "the package").unwrap();
    let world = World::with(&format!("sdk_dir = \"{}\"", folder.path().display())).await;

    let answer = world.send_as("", "GET", "/sdk/python").await.expect(200);
    assert_eq!(answer.body, "the package");
    let name = format!("attachment; filename=\"burrow_sandbox-{}.tar.gz\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(answer.headers["content-disposition"], name.as_str());

    // An installation that was built without Node.js.
    let answer = world.send_as("", "GET", "/sdk/typescript").await;
    answer.refused(404, "not_found");
    assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("Node.js"));

    let request = world.request("", "GET", "/sdk/python").header("host", "evil.example");
    world.raw(request.body(Body::empty()).unwrap()).await.refused(403, "forbidden");
}
