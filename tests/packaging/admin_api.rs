//! OpenAPI document of the admin API in docs/openapi.json, and the page docs/admin-api.md.

use serde_json::Value;

use super::{gateway, golden, text};

#[test]
fn openapi_document_is_up_to_date_and_printed_by_the_program() {
    let document = model_gateway::admin::openapi_document();
    let expected = format!("{document:#}\n");
    golden("docs/openapi.json", &expected);
    let output = gateway(&["admin", "openapi"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn admin_api_page_lists_every_operation_with_its_role() {
    let page = text("docs/admin-api.md");
    let document: Value = serde_json::from_str(&text("docs/openapi.json")).unwrap();
    let mut missing = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let below = path.strip_prefix("/admin/v1").unwrap();
        for (method, operation) in methods.as_object().unwrap() {
            let below = if below.is_empty() { "/" } else { below };
            let row = format!(
                "| {} `{below}` | {} |",
                method.to_uppercase(),
                operation["x-role"].as_str().unwrap()
            );
            if !page.contains(&row) {
                missing.push(row);
            }
        }
    }
    assert!(missing.is_empty(), "docs/admin-api.md lacks these rows:\n{}", missing.join("\n"));
}
