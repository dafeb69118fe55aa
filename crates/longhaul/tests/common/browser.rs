//! A page in a real browser.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// Names a folder where tests keep pictures of the pages that they look at.
pub(crate) const PICTURES: &str = "LONGHAUL_PICTURES";

/// What is wider than the window and does not scroll by itself.
const WIDER: &str = r#"[...document.querySelectorAll("body *")].filter(element => {
    const { width, height, right } = element.getBoundingClientRect();
    return width > 0 && height > 0 && right > document.documentElement.clientWidth + 0.5 && !element.closest("svg, .matrix-scroll, .unseen");
}).map(element => element.tagName + "." + element.className)"#;

/// A browser without a window, spoken to in the Chrome DevTools Protocol over a pair of pipes.
pub(crate) struct Browser {
    process: Child,
    commands: File,
    answers: BufReader<File>,
    session: Option<String>,
    last: u64,
    events: Vec<Value>,
}

impl Browser {
    /// `None` where there is no browser, which is printed.
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        if Command::new("chromium").arg("--version").output().is_err() {
            longhaul_testing::no_judge!("there is no chromium; install it (make deps)");
            return None;
        }
        let (to, from) = (folder.join("to-browser"), folder.join("from-browser"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // It reads commands from descriptor 3 and answers at 4. A browser that hangs ends with its time.
        let script = "exec timeout 240 chromium --headless --no-sandbox --disable-gpu --no-first-run \
                      --user-data-dir=\"$1\" --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"";
        let process = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([folder.join("profile"), to.clone(), from.clone()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opening a pipe waits for its other end, so in the shell's order.
        let commands = OpenOptions::new().write(true).open(&to).unwrap();
        let answers = BufReader::new(File::open(&from).unwrap());
        let mut browser = Self { process, commands, answers, session: None, last: 0, events: Vec::new() };
        let targets = browser.ask("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|target| target["type"] == "page").unwrap();
        let attached = browser.ask("Target.attachToTarget", json!({ "targetId": page["targetId"], "flatten": true }));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    pub(crate) fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.answers.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&message).unwrap()
    }

    /// Opens `url` in a window of `width` and waits until it is loaded.
    pub(crate) fn open(&mut self, url: &str, width: u32, mobile: bool) {
        let window = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": mobile });
        self.ask("Emulation.setDeviceMetricsOverride", window);
        self.events.clear();
        self.ask("Page.navigate", json!({ "url": url }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.read();
            self.events.push(event);
        }
    }

    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let answer =
            self.ask("Runtime.evaluate", json!({ "expression": script, "returnByValue": true, "awaitPromise": true }));
        assert!(answer["exceptionDetails"].is_null(), "{answer:#}");
        answer["result"]["value"].clone()
    }

    /// Moves the mouse to each place in turn; between the first and the last its button is down where `drags`.
    pub(crate) fn mouse(&mut self, places: &[(f64, f64)], drags: bool) {
        let mut event = |kind: &str, (x, y): (f64, f64), buttons: u8| {
            let button = if kind == "mouseMoved" && buttons == 0 { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
            self.ask("Input.dispatchMouseEvent", event);
        };
        for (number, place) in places.iter().enumerate() {
            event("mouseMoved", *place, u8::from(drags && number > 0));
            if drags && number == 0 {
                event("mousePressed", *place, 1);
            }
        }
        if let (true, Some(last)) = (drags, places.last()) {
            event("mouseReleased", *last, 0);
        }
    }

    /// Keeps a picture of the whole page for people, in the folder that [`PICTURES`] names, which is there.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os(PICTURES) else { return };
        let size = self.ask("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let whole = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.ask("Page.captureScreenshot", whole);
        let file = File::create(Path::new(&folder).join(format!("{name}.png"))).unwrap();
        let mut decoder = Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(file).spawn().unwrap();
        decoder.stdin.take().unwrap().write_all(picture["data"].as_str().unwrap().as_bytes()).unwrap();
        assert!(decoder.wait().unwrap().success(), "{name}");
    }

    /// What came on the console, from the page or from the browser about it.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
        let names = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        self.events.iter().filter(|event| names.iter().any(|name| event["method"] == *name)).collect()
    }

    /// Fails if something is wider than the window, if a script complains, or if `axe`, which judges whether all can read the page, does.
    pub(crate) fn is_good(&mut self, what: &str, axe: Option<&str>) {
        assert_eq!(self.evaluate(WIDER), json!([]), "wider than the window: {what}");
        assert!(self.complaints().is_empty(), "{what}: {:#?}", self.complaints());
        if let Some(axe) = axe {
            self.evaluate(&format!("{axe}; 0"));
            let found = self.evaluate(
                "axe.run().then(({ violations }) => violations.filter(({ impact }) => impact === 'serious' || impact === 'critical') \
                 .map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html, failureSummary }) => [html.slice(0, 200), failureSummary])]))",
            );
            assert_eq!(found, json!([]), "{what}: {found:#}");
        }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        // It ends its own children. `timeout` ends it where it does not.
        let _ = self.answers.read_to_end(&mut Vec::new());
        let _ = self.process.wait();
    }
}

/// axe-core, where the web parts are installed.
pub(crate) fn axe() -> Option<String> {
    let axe =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/node_modules/axe-core/axe.min.js")).ok();
    if axe.is_none() {
        longhaul_testing::no_judge!(
            "there is no axe-core (scripts/web.sh): nobody looked whether pages can be read by all"
        );
    }
    axe
}
