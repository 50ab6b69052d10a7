//! Images through the API: names in paths, contradicting fields, invalid archives.

use burrow_model::Scope;
use serde_json::json;

use super::world::World;

#[tokio::test]
async fn an_image_is_inspected_tagged_and_removed() {
    let world = World::new().await;
    let detail = world.send("GET", "/v1/images/debian").await.expect(200).json();
    let id = detail["id"].as_str().unwrap().to_owned();
    assert_eq!((&detail["names"], &detail["layers"]), (&json!(["debian"]), &json!([])));

    let body = json!({ "name": "registry.example.com/org/app:v1" }).to_string();
    let tagged = world.send_json("POST", "/v1/images/debian/tags", body).await.expect(200).json();
    assert_eq!(tagged["names"], json!(["debian", "registry.example.com/org/app:v1"]));
    // Slashes are part of the name, not of the path.
    let found = world.send("GET", "/v1/images/registry.example.com%2Forg%2Fapp:v1").await.expect(200).json();
    assert_eq!(found["id"], detail["id"]);
    let listed =
        world.send("GET", "/v1/images?name=registry.example.com%2Forg%2Fapp:v1").await.expect(200).json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    world.send("GET", "/v1/images?name=No%20Good").await.refused(400, "invalid_request");

    world.send("DELETE", "/v1/images/debian/tags/registry.example.com%2Forg%2Fapp:v1").await.expect(204);
    world.send("DELETE", "/v1/images/debian/tags/other").await.refused(404, "not_found");
    world.send("DELETE", &format!("/v1/images/{id}")).await.expect(204);
    world.send("GET", "/v1/images/debian").await.refused(404, "not_found");
    world.send("DELETE", &format!("/v1/images/{id}")).await.refused(404, "not_found");
    let pruned = world.send("POST", "/v1/images/prune").await.expect(200).json();
    assert_eq!(pruned, json!({ "images": [], "layers": 0, "freed_bytes": 0 }));
}

#[tokio::test]
async fn errors_about_contradicting_fields_name_the_field() {
    let world = World::new().await;
    for (body, field) in [
        (json!({ "from": "pull" }), "reference"),
        (json!({ "from": "pull", "reference": "a", "packages": ["x"] }), "packages"),
        (json!({ "reference": "a" }), "reference"),
        (json!({ "from": "pull", "reference": "a", "rebuild": true }), "rebuild"),
        (json!({ "from": "sandbox" }), "sandbox"),
        (json!({ "from": "recipe" }), "recipe"),
        (json!({ "from": "recipe", "recipe": "{" }), "build file"),
        (json!({ "from": "pull", "reference": "A B" }), "image reference"),
        (json!({ "from": "packages" }), "packages"),
        (json!({ "from": "packages", "packages": ["-y"] }), "-y"),
        (
            json!({ "from": "pull", "reference": "a", "credentials": { "username": "a:b", "password": "" } }),
            "credentials",
        ),
        (json!({ "from": "dance" }), "from"),
    ] {
        let answer = world.send_json("POST", "/v1/images", body.to_string()).await;
        answer.refused(400, "invalid_request");
        let told = answer.json()["error"]["message"].to_string();
        assert!(told.contains(field), "{body}: {told}");
    }
    for path in ["/v1/images/A%20B", "/v1/images/..%2F..", "/v1/images/a%00b"] {
        world.send("GET", path).await.refused(400, "invalid_request");
    }
    world
        .send_json("POST", "/v1/images", "{\"from\":\"sandbox\",\"sandbox\":\"nobody\"}")
        .await
        .refused(404, "not_found");
    world
        .send_json(
            "POST",
            "/v1/images",
            "{\"from\":\"packages\",\"packages\":[\"git\"],\"base\":\"missing\"}",
        )
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn only_an_admin_changes_images() {
    let world = World::new().await;
    let exec = world.new_key(Scope::Exec, None).await;
    for (method, path) in [
        ("DELETE", "/v1/images/debian"),
        ("POST", "/v1/images/prune"),
        ("PUT", "/v1/images/import"),
        ("PUT", "/v1/images/build"),
        ("DELETE", "/v1/images/debian/tags/debian"),
    ] {
        world.send_as(&exec, method, path).await.refused(403, "forbidden");
    }
    world.send_as(&exec, "GET", "/v1/images/debian").await.expect(200);
}
