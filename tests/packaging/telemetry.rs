//! Dashboard and alert rules, checked against docs/metrics.md (which tests/metrics.rs holds to the registry): each series
//! exists and has the labels that are used, and a counter is never shown by its value.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{golden, have, root, text};

/// Labels that Prometheus adds to each series, and that of histogram buckets.
const SCRAPE_LABELS: [&str; 3] = ["job", "instance", "le"];

/// Type and labels of each series in docs/metrics.md.
fn series() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let page = text("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let series = cells.filter(|cells| cells.len() == 5);
    let series: BTreeMap<_, _> = series
        .map(|cells| {
            (quoted(cells[0]).remove(0), (cells[1].to_owned(), quoted(cells[2]).into_iter().collect()))
        })
        .collect();
    assert!(series.len() > 50, "{series:?}");
    series
}

/// Returns the faults of an expression: unknown series and labels, and counters outside of rate and increase.
fn faults(expression: &str) -> Vec<String> {
    let series = series();
    let mut faults = Vec::new();
    let mut labels: BTreeSet<String> = SCRAPE_LABELS.map(str::to_owned).into();
    let name = Regex::new("(gateway|gen_ai|process)_[a-z_0-9]+").unwrap();
    let label = Regex::new("([a-z_]+) *(=~|!=|!~|=)").unwrap();
    // A label and a recording rule may begin like a series.
    let is_series = |at: usize, end: usize| {
        let (before, after) = (&expression[..at], &expression[end..]);
        let inside = before.rfind('{') > before.rfind('}');
        let grouping = before.rfind("by (").is_some_and(|by| !before[by..].contains(')'))
            || before.rfind("on (").is_some_and(|on| !before[on..].contains(')'));
        let word =
            before.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric() || c == ':' || c == '_');
        !inside && !grouping && !word && !after.starts_with(':')
    };
    let mut seen = 0;
    for found in name.find_iter(expression).filter(|found| is_series(found.start(), found.end())) {
        seen += 1;
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| found.as_str().strip_suffix(part));
        let histogram = base.filter(|base| series.get(*base).is_some_and(|(kind, _)| kind == "histogram"));
        let Some((kind, own)) = series.get(histogram.unwrap_or(found.as_str())) else {
            faults.push(format!("{}: no such series", found.as_str()));
            continue;
        };
        labels.extend(own.iter().cloned());
        if kind == "histogram" && histogram.is_none() {
            faults.push(format!("{}: a histogram has _bucket, _sum and _count only", found.as_str()));
        }
        let before = &expression[..found.start()];
        if kind != "gauge" && !before.ends_with("rate(") && !before.ends_with("increase(") {
            faults.push(format!("{}: a counter without rate or increase", found.as_str()));
        }
        let selector = expression[found.end()..].strip_prefix('{').and_then(|rest| rest.split('}').next());
        for used in label.captures_iter(selector.unwrap_or_default()) {
            if !own.contains(&used[1]) && !SCRAPE_LABELS.contains(&&used[1]) {
                faults.push(format!("{}: no label {}", found.as_str(), &used[1]));
            }
        }
    }
    for group in Regex::new(r"\b(?:by|on) \(([^)]*)\)").unwrap().captures_iter(expression) {
        let unknown = group[1].split(',').map(str::trim).filter(|name| !labels.contains(*name));
        faults.extend(unknown.filter(|_| seen > 0).map(|name| format!("no label {name}")));
    }
    faults
}

#[test]
fn faults_of_expressions_are_found() {
    for well in [
        "sum by (model) (rate(gateway_requests_total{status=~\"5..\"}[5m]))",
        "histogram_quantile(0.5, sum by (le) (rate(gateway_overhead_seconds_bucket[5m])))",
        "gateway_target_available{job=\"x\"} == 0 and on (job, instance) gateway_build_info",
        "gateway:requests:rate5m > 1",
        "sum by (gen_ai_request_model) (rate(gen_ai_server_request_duration_seconds_count[5m]))",
    ] {
        assert_eq!(faults(well), Vec::<String>::new(), "{well}");
    }
    for wrong in [
        "sum(rate(gateway_request_total[5m]))",
        "sum(gateway_requests_total)",
        "sum(rate(gateway_requests_total{code=\"500\"}[5m]))",
        "sum by (key) (rate(gateway_requests_total[5m]))",
        "rate(gateway_overhead_seconds[5m])",
        "changes(gateway_reloads_total[5m])",
    ] {
        assert_eq!(faults(wrong).len(), 1, "{wrong}: {:?}", faults(wrong));
    }
}

/// Table from which the dashboard is made.
#[derive(Deserialize)]
struct Panels {
    row: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    title: String,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    #[serde(default = "time_series")]
    r#type: String,
    unit: String,
    #[serde(default)]
    description: String,
    queries: Vec<Query>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    expr: String,
    #[serde(default)]
    legend: String,
}

fn time_series() -> String {
    "timeseries".to_owned()
}

impl Query {
    /// The expression with the variables of the dashboard.
    fn selected(&self) -> String {
        const BASE: &str = "job=~\"$job\",instance=~\"$instance\"";
        self.expr
            .replace("@model", &format!("{BASE},model=~\"$model\""))
            .replace("@provider", &format!("{BASE},provider=~\"$provider\""))
            .replace('@', BASE)
    }
}

fn panels() -> Panels {
    toml::from_str(&text("packaging/grafana/panels.toml")).unwrap()
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn variable(name: &str, query: &str) -> Value {
    json!({
        "name": name, "type": "query", "datasource": source(), "query": query, "refresh": 2, "sort": 1,
        "includeAll": true, "multi": true, "allValue": ".*", "current": { "text": "All", "value": "$__all" }
    })
}

/// Panel of the dashboard, with its width and height at a place of the grid.
fn panel(panel: &Panel, id: usize, place: [usize; 4]) -> Value {
    let [x, y, w, h] = place;
    let is_table = panel.r#type == "table";
    let targets = panel.queries.iter().zip('A'..='Z').map(|(query, reference)| {
        let mut target = json!({
            "refId": reference.to_string(), "datasource": source(), "expr": query.selected(),
            "instant": is_table, "range": !is_table
        });
        if is_table {
            target["format"] = json!("table");
        }
        if !query.legend.is_empty() {
            target["legendFormat"] = json!(query.legend);
        }
        target
    });
    let mut made = json!({
        "id": id, "type": panel.r#type, "title": panel.title, "datasource": source(),
        "gridPos": { "h": h, "w": w, "x": x, "y": y },
        "fieldConfig": { "defaults": { "unit": panel.unit }, "overrides": [] },
        "options": {}, "targets": targets.collect::<Vec<_>>()
    });
    if !panel.description.is_empty() {
        made["description"] = json!(panel.description);
    }
    made
}

fn dashboard() -> Value {
    let mut made = Vec::new();
    let (mut y, mut id) = (0, 0);
    for row in panels().row {
        id += 1;
        made.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": { "h": 1, "w": 24, "x": 0, "y": y }
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for each in &row.panels {
            id += 1;
            let (w, h) = if each.r#type == "stat" { (4, 4) } else { (8, 8) };
            if x + w > 24 {
                (x, y) = (0, y + height);
            }
            made.push(panel(each, id, [x, y, w, h]));
            (x, height) = (x + w, h);
        }
        y += height;
    }
    json!({
        "title": "model-gateway", "uid": "model-gateway", "schemaVersion": 39, "version": 1, "editable": true,
        "refresh": "30s", "time": { "from": "now-3h", "to": "now" }, "timezone": "utc", "tags": ["llm", "gateway"],
        "annotations": { "list": [{
            "name": "Reloads", "enable": true, "iconColor": "blue", "datasource": source(),
            "expr": "changes(gateway_config_generation{job=~\"$job\",instance=~\"$instance\"}[1m]) > 0",
            "titleFormat": "reload"
        }] },
        "templating": { "list": [
            { "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" },
            variable("job", "label_values(gateway_build_info, job)"),
            variable("instance", "label_values(gateway_build_info{job=~\"$job\"}, instance)"),
            variable("model", "label_values(gateway_requests_total{job=~\"$job\"}, model)"),
            variable("provider", "label_values(gateway_requests_total{job=~\"$job\"}, provider)")
        ] },
        "panels": made
    })
}

#[test]
fn dashboard_is_made_from_its_table() {
    golden("packaging/grafana/model-gateway.json", &format!("{:#}\n", dashboard()));
}

#[test]
fn dashboard_uses_existing_series() {
    let mut all = Vec::new();
    for row in panels().row {
        for panel in row.panels {
            for query in &panel.queries {
                let place = |fault| format!("{} / {}: {fault}", row.title, panel.title);
                all.extend(faults(&query.selected()).into_iter().map(place));
            }
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

/// The values of a key in the rules, such as `expr`: in one line, or as an indented block.
fn values(rules: &str, key: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut lines = rules.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(rest) = line.trim_start().trim_start_matches("- ").strip_prefix(&format!("{key}: ")) else {
            continue;
        };
        if rest != "|" {
            values.push(rest.trim_matches('"').to_owned());
            continue;
        }
        let mut block = String::new();
        while let Some(next) = lines.next_if(|next| next.len() - next.trim_start().len() > indent) {
            block.push_str(next.trim_start());
            block.push(' ');
        }
        values.push(block);
    }
    values
}

#[test]
fn alerts_use_existing_series_and_name_their_sections() {
    let rules = text("packaging/prometheus/rules.yml");
    let alerts = values(&rules, "alert");
    assert!(alerts.len() > 15);
    let expressions = values(&rules, "expr");
    assert_eq!(expressions.len(), alerts.len() + values(&rules, "record").len());
    let found: Vec<String> = expressions.iter().flat_map(|expression| faults(expression)).collect();
    assert!(found.is_empty(), "{found:#?}");

    let runbooks = values(&rules, "runbook");
    assert_eq!(runbooks.len(), alerts.len(), "an alert without a runbook");
    for runbook in runbooks {
        let (page, anchor) = runbook.split_once('#').unwrap();
        let headings = text(page);
        let anchors =
            headings.lines().filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")));
        let mut anchors = anchors.map(|heading| heading.to_lowercase().replace(' ', "-"));
        assert!(anchors.any(|heading| heading == anchor), "{runbook}");
    }
}

#[test]
fn alerts_are_listed_on_the_page_and_tested() {
    let alerts: BTreeSet<String> =
        values(&text("packaging/prometheus/rules.yml"), "alert").into_iter().collect();
    let page = text("docs/operations.md");
    let (_, section) = page.split_once("\n## Alerts\n").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines();
    let listed: BTreeSet<String> =
        rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect();
    assert_eq!(listed, alerts);
    let tests = text("packaging/prometheus/rules.test.yml");
    let tested: BTreeSet<String> = values(&tests, "alertname").into_iter().collect();
    assert_eq!(tested, alerts);
}

#[test]
fn alerts_pass_their_unit_tests() {
    if !have("promtool") {
        return;
    }
    for arguments in [["check", "rules", "rules.yml"], ["test", "rules", "rules.test.yml"]] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(root().join("packaging/prometheus"))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

/// The chart needs a file of its own: a link would lead out of it.
#[test]
fn alerts_of_the_chart_are_those_of_the_repository() {
    golden("packaging/helm/model-gateway/rules.yml", &text("packaging/prometheus/rules.yml"));
}
