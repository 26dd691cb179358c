//! Chromium without a window, over WebDriver (<https://www.w3.org/TR/webdriver2/>).

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::ports::free_port;

/// Time within which a page must show what a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Member with which WebDriver refers to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Browser with one page. It ends with its value.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    folder: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser when it is asked to; if it is killed first, the browser notices it.
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.driver.id().try_into().unwrap()),
            nix::sys::signal::Signal::SIGTERM,
        );
        let _ = self.driver.wait();
        // On a busy machine the driver ends before its browser does, which would stay.
        let profile = self.folder.path().to_string_lossy().into_owned();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let id = process.file_name().to_string_lossy().parse::<i32>();
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            if let (Ok(id), true) = (id, String::from_utf8_lossy(&command).contains(&profile)) {
                let _ =
                    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

/// Returns the program of a name. `None` if it is missing.
fn program(name: &str) -> Option<std::path::PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

impl Browser {
    /// Starts a browser. `None` if it is not installed, which is said.
    pub(crate) async fn start() -> Option<Browser> {
        let (Some(driver), Some(browser)) = (program("chromedriver"), program("chromium")) else {
            let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
            assert!(!required, "chromium or chromedriver is missing, and GATEWAY_REQUIRE_ALL=1");
            eprintln!("SKIPPED: chromium or chromedriver is not installed");
            return None;
        };
        let (address, folder) = (free_port(), tempfile::tempdir().unwrap());
        let driver = Command::new(driver)
            .arg(format!("--port={}", address.port()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Browser { driver, address, session: String::new(), folder };
        let profile = format!("--user-data-dir={}", started.folder.path().join("profile").display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--lang=en-GB",
            &profile,
        ];
        let options = json!({ "binary": browser, "args": arguments });
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "chromedriver does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // On a busy machine the driver gives up on a browser that does not answer in time.
        let session = loop {
            match started.call("POST", "/session", Some(body.clone())).await {
                Ok(session) => break session,
                Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
            }
        };
        started.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(started)
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = format!(
            "{method} {}{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.session,
            self.address,
            body.len()
        );
        let mut connection = Client::connect(self.address).await;
        connection.send(request).await;
        let answer = connection.try_answer().await.ok_or("the driver has closed the connection")?;
        let value = answer.json()["value"].clone();
        match value.get("error") {
            Some(_) => Err(value["message"].as_str().unwrap_or_default().to_owned()),
            None => Ok(value),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.call("POST", path, Some(body)).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Opens an address.
    pub(crate) async fn open(&self, address: &str) {
        self.post("/url", json!({ "url": address })).await;
    }

    /// Runs a function's body in the page and returns its result.
    pub(crate) async fn run(&self, script: &str, arguments: Value) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": arguments })).await
    }

    /// Runs a function's body whose last argument is called with the result.
    pub(crate) async fn run_later(&self, script: &str) -> Value {
        self.post("/execute/async", json!({ "script": script, "args": [] })).await
    }

    /// Sends a header with every request from now on.
    pub(crate) async fn send_header(&self, name: &str, value: &str) {
        self.devtools("Network.enable", json!({})).await;
        self.devtools("Network.setExtraHTTPHeaders", json!({ "headers": { name: value } })).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    /// Sets the size of the page in pixels, and its colours.
    pub(crate) async fn look(&self, (width, height): (u32, u32), is_dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" }
        ]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Returns a picture of what is visible, as WebP.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        let shot = self.devtools("Page.captureScreenshot", json!({ "format": "webp", "quality": 80 })).await;
        let text = shot["data"].as_str().unwrap();
        base64_simd::STANDARD.decode_to_vec(text).unwrap()
    }

    /// Waits for an element, by its XPath.
    async fn element(&self, path: &str) -> String {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let found = self.call("POST", "/element", Some(json!({ "using": "xpath", "value": path }))).await;
            match found {
                Ok(found) => return found[ELEMENT].as_str().unwrap().to_owned(),
                Err(_) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(_) => panic!("there is no {path} in:\n{}", self.text().await),
            }
        }
    }

    async fn click_path(&self, path: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let element = self.element(path).await;
            let clicked = self.call("POST", &format!("/element/{element}/click"), Some(json!({}))).await;
            match clicked {
                Ok(_) => return,
                // It was drawn anew, moves, or something lies over it at the moment.
                Err(_) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => panic!("{path} cannot be clicked: {error}"),
            }
        }
    }

    /// Clicks what has this text: a button, link, summary or label that can be used, in the open dialog if there is one. Entries
    /// of the navigation are not meant: some have the name of something in a page.
    pub(crate) async fn click(&self, text: &str) {
        let of =
            |name: &str| format!("//{name}[normalize-space(.)='{text}' and not(@disabled or ancestor::nav)]");
        let kinds = ["button", "a", "summary", "label"].map(of).join(" | ");
        let in_dialog = kinds.replace("//", "//dialog[@open]//");
        let open = self.run("return !!document.querySelector('dialog[open]')", json!([])).await;
        self.click_path(if open == true { &in_dialog } else { &kinds }).await;
    }

    /// Clicks the button that sends the open form.
    pub(crate) async fn click_submit(&self, text: &str) {
        self.click_path(&format!(
            "//form//button[@type='submit' and normalize-space(.)='{text}' and not(@disabled)]"
        ))
        .await;
    }

    /// Opens the first row of a table that has a text.
    pub(crate) async fn click_row(&self, text: &str) {
        self.click_path(&format!("(//tr[contains(., '{text}')]//button[@data-row])[1]")).await;
    }

    /// Clicks a button in the row of a table that has a text.
    pub(crate) async fn click_in_row(&self, row: &str, text: &str) {
        self.click_path(&format!(
            "//tr[contains(., '{row}')]//button[normalize-space(.)='{text}' and not(@disabled)]"
        ))
        .await;
    }

    fn field(label: &str) -> String {
        format!("//label[normalize-space(.)='{label}']/following-sibling::*[1]")
    }

    /// Types a text into the field with this label, in place of what it has.
    pub(crate) async fn type_into(&self, label: &str, text: &str) {
        let element = self.element(&Self::field(label)).await;
        // All of it is selected (Ctrl A) and replaced, as a person does it.
        let keys = format!("\u{e009}a\u{e000}{text}");
        self.post(&format!("/element/{element}/value"), json!({ "text": keys })).await;
    }

    /// Chooses an option of the list with this label.
    pub(crate) async fn choose(&self, label: &str, option: &str) {
        self.click_path(&format!("{}/option[normalize-space(.)='{option}']", Self::field(label))).await;
    }

    /// Presses keys, one after the other.
    pub(crate) async fn press(&self, keys: &str) {
        let mut actions = Vec::new();
        for key in keys.chars() {
            actions.push(json!({ "type": "keyDown", "value": key }));
            actions.push(json!({ "type": "keyUp", "value": key }));
        }
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("/actions", json!({ "actions": [keyboard] })).await;
    }

    /// Returns what is visible.
    pub(crate) async fn text(&self) -> String {
        self.run("return document.body.innerText", json!([])).await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a text is visible.
    pub(crate) async fn sees(&self, text: &str) {
        self.until(text, |seen| seen.contains(text)).await;
    }

    /// Waits until what is visible fulfils a condition.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let seen = self.text().await;
            if holds(&seen) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{what} is not there:\n{seen}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the first row of a table that has a text fulfils a condition.
    pub(crate) async fn until_row(&self, text: &str, holds: impl Fn(&str) -> bool) {
        let script = "const row = [...document.querySelectorAll('tbody tr')].find((row) => row.textContent.includes(arguments[0])); \
                      return row ? row.textContent : ''";
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let row = self.run(script, json!([text])).await;
            let row = row.as_str().unwrap_or_default();
            if !row.is_empty() && holds(row) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "the row of {text} is: {row}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns what the page has complained about: faults of scripts, refused resources, and violations of the content
    /// security policy.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let lines = self.post("/se/log", json!({ "type": "browser" })).await;
        let lines = lines.as_array().unwrap().iter();
        let severe = lines.filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        severe.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Stores a picture of what is visible if pictures are asked for.
    pub(crate) async fn store_picture(&self, name: &str) {
        if std::env::var_os("UPDATE_SHOTS").is_some() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/console");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{name}.webp")), self.picture().await).unwrap();
        }
    }
}
